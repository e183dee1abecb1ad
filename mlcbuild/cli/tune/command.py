"""`mlcbuild tune`: from the command line to records, and what is printed of them."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.build.request import BuildRequest
from mlcbuild.cli.output import text
from mlcbuild.cli.output.slow_progress import SlowProgress, slow_progress
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.settings.execution import resolve_execution
from mlcbuild.cli.settings.history import history_limits
from mlcbuild.cli.settings.remote import resolve_remote
from mlcbuild.cli.tune.building import TuneBuilder
from mlcbuild.cli.tune.output import print_tuned
from mlcbuild.cli.tune.plan import Trial, TunableKernel, next_trials
from mlcbuild.cli.tune.recording import records_of, tools
from mlcbuild.cli.tune.remote_records import libraries_of, platform_of, remote_logs, tuning_of
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.errors import BuildError, CacheError, UsageError
from mlcbuild.execution.measuring_lock import measuring_here
from mlcbuild.rules.analysis import Analysis
from mlcbuild.rules.tuning import trials_of
from mlcbuild.rules.tuning_actions import TunedLibrary
from mlcbuild.runtime.measuring.measurement import Measurement
from mlcbuild.tuning.record import Record
from mlcbuild.tuning.rule_versions import is_current
from mlcbuild.tuning.store import RecordStore
from mlcbuild.workspace.loader import LoadedWorkspace

DEFAULT_TRIALS = 64


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """What the command line asks for. `build` has the targets, whose libraries are tuned, and how they are built.
    `trials` None: what the targets' attribute says, or DEFAULT_TRIALS. `seconds` is the longest that one measurement
    may take.
    """

    build: BuildRequest
    trials: int | None = None
    seconds: float = 60.0


@dataclass(frozen=True, kw_only=True)
class OpenTuning:
    """The libraries among the targets, their kernels that leave a choice, and what is known of them."""

    builder: TuneBuilder
    libraries: tuple[TunedLibrary, ...]
    kernels: tuple[TunableKernel, ...]
    store: RecordStore
    trials: int

    @property
    def platforms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(platform_of(library) for library in self.libraries))

    def records(self) -> dict[str, list[Record]]:
        """What the store has of the kernels, by kernel, each for the platform of its library. Records of other rules
        than today's, and of other versions of it, are left out."""
        by_platform = {platform: self.store.records(platform) for platform in self.platforms}
        found: dict[str, list[Record]] = defaultdict(list)
        today = {kernel.name: (platform_of(kernel.library), kernel.listed.rule) for kernel in self.kernels}
        for platform, records in by_platform.items():
            for record in records:
                if today.get(record.kernel) == (platform, record.rule) and is_current(record.rule):
                    found[record.kernel].append(record)
        return found


def open_tuning(request: TuneRequest, options: GlobalOptions, progress: SlowProgress) -> OpenTuning:
    """Load, analyse and build the targets as far as their kernels. Raises MlcbuildError as a build does."""
    workspace = open_workspace(options.directory, to_load=True)
    loaded = workspace.load(request.build.patterns, request.build.configuration, request.build.overrides)
    analysis = workspace.analyse(loaded, request.build.disk_cache)
    libraries = libraries_of(analysis)
    if not libraries:
        raise UsageError(
            "no target has a library whose kernels are scheduled",
            advice=("name a model_library or a model_package, with opt above O0",),
        )
    remote = resolve_remote(request.build.remote, options.environment, workspace.settings)
    builder = TuneBuilder(
        workspace=workspace,
        analysis=analysis,
        execution=resolve_execution(request.build.execution, options.environment, workspace.settings),
        remote=remote,
        disk_cache=request.build.disk_cache,
        jobs=request.build.jobs,
        arguments=options.arguments,
        limits=history_limits(options.environment),
        say=options.note,
    )
    store = RecordStore.of(request.build.disk_cache)
    platforms = tuple(dict.fromkeys(platform_of(library) for library in libraries))
    with remote_logs(workspace, remote, request.build.disk_cache, platforms, options.note) as logs:
        for log in logs:
            store.add(log.read())
    progress.show_unmeasured("finding kernels")
    return OpenTuning(
        builder=builder,
        libraries=libraries,
        kernels=builder.tunable(libraries),
        store=store,
        trials=_trials(request, loaded, analysis),
    )


def tune(request: TuneRequest, output: OutputFormat, options: GlobalOptions) -> None:
    """Measure candidates until the trials are spent, and print what was found. Raises MlcbuildError."""
    with slow_progress(options) as progress:
        opened = open_tuning(request, options, progress)
        known = opened.records()
        rounds = TuneRounds(opened, request, progress)
        try:
            rounds.make(options.note)
        finally:
            if rounds.spent:
                _send(opened, request, options)
    if rounds.failed:
        options.note(f"{text.plural(len(rounds.failed), 'trial')} could not be made: {rounds.why}")
    print_tuned(opened.kernels, opened.records(), before=known, spent=rounds.spent, output=output, options=options)


class TuneRounds:
    """Measures in rounds, each of which is planned by what the ones before it told. `spent` counts the trials that
    have records; `failed` are those that have none, by kernel and number, and `why` is the first one's error."""

    def __init__(self, opened: OpenTuning, request: TuneRequest, progress: SlowProgress) -> None:
        self._opened = opened
        self._seconds = request.seconds
        self._progress = progress
        self._tools = tools()
        self._measured: set[tuple[str, int]] = set()
        self.failed: set[tuple[str, int]] = set()
        self.why = ""

    @property
    def spent(self) -> int:
        return len(self._measured)

    def make(self, note: Callable[[str], object]) -> None:
        """Raises MlcbuildError where it is interrupted, or nothing can be measured here."""
        opened = self._opened
        alone = not opened.builder.execution.uses_ray
        with contextlib.ExitStack() as stack:
            if alone and self._planned():
                stack.enter_context(measuring_here(waits=note))
            # What another process has measured meanwhile is not measured again.
            while trials := self._planned():
                result = opened.builder.measure(trials, seconds=self._seconds, alone=alone, measured=self._record)
                error = result.error() or BuildError("no candidate could be measured")
                self.failed |= {(trial.kernel.name, trial.number) for trial in trials} - self._measured
                if result.interrupted:
                    raise error
                if self.failed:
                    self.why = self.why or error.message
                    if not self._measured and (len(self.failed) > 1 or not self._planned()):
                        raise error

    def _planned(self) -> tuple[Trial, ...]:
        """A trial that failed is spent as well: a machine that fails always comes to an end."""
        left = max(0, self._opened.trials - self.spent - len(self.failed))
        return next_trials(self._opened.kernels, self._opened.records(), left, failed=self.failed)

    def _record(self, trial: Trial, measurements: Sequence[Measurement]) -> None:
        self._measured.add((trial.kernel.name, trial.number))
        self._opened.store.add(
            records_of(
                measurements,
                kernel=trial.kernel.name,
                rule=trial.kernel.listed.rule,
                shape=trial.shape,
                platform=platform_of(trial.kernel.library),
                compiled_by=self._tools,
            )
        )
        self._progress.show_counted("trials", self.spent, self._opened.trials)


def _send(opened: OpenTuning, request: TuneRequest, options: GlobalOptions) -> None:
    """Send what the remote cache does not have, if it may be written."""
    remote = opened.builder.remote
    if remote is None or not remote.configuration.policy.sends:
        return
    workspace = opened.builder.workspace
    with remote_logs(workspace, remote, request.build.disk_cache, opened.platforms, options.note) as logs:
        try:
            for log in logs:
                log.add(opened.store.records(log.platform))
        except CacheError as error:
            options.note(f"the records stay in the disk cache, and are sent by the next tune: {error.message}")


def _trials(request: TuneRequest, loaded: LoadedWorkspace, analysis: Analysis) -> int:
    if request.trials is not None:
        return request.trials
    owners = {library.owner for library in libraries_of(analysis)}
    named = [trials_of(tuning_of(target)) for label, target in loaded.targets.items() if str(label) in owners]
    return sum(named) or DEFAULT_TRIALS
