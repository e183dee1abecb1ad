"""One command that builds: opens the workspace, loads, analyses, drives the build, and reports.

The reports are written however the command ends.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.cli.arguments.options import (
    LOG_DIRECTORY,
    RECORD_DIRECTORY,
    STATE_DIRECTORY,
    GlobalOptions,
    ProgressChoice,
)
from mlcbuild.cli.build.interruption import hearing_ctrl_c, interrupting
from mlcbuild.cli.build.listeners import Listeners, reason_of
from mlcbuild.cli.build.network_cache_notice import network_cache_notice
from mlcbuild.cli.build.no_op_check import request_text, without_credentials
from mlcbuild.cli.build.no_op_recorder import NoOpRecorder
from mlcbuild.cli.build.parts import build_parts, fetched_targets, targets_of
from mlcbuild.cli.console.action_logs import ActionLogs
from mlcbuild.cli.console.console import Console
from mlcbuild.cli.console.not_cached import not_cached_lines
from mlcbuild.cli.console.remote_summary import RemoteSummary
from mlcbuild.cli.console.summary import summary_lines
from mlcbuild.cli.exit_codes import ExitCode, retry_line
from mlcbuild.cli.log.recording import write_record
from mlcbuild.cli.output.atomic_file import write_json_atomically
from mlcbuild.cli.output.errors import code_of
from mlcbuild.cli.output.terminal import is_terminal
from mlcbuild.cli.reports.build_report import BuildReport
from mlcbuild.cli.reports.ci_reports import CiReports
from mlcbuild.cli.reports.event_log import EventLog
from mlcbuild.cli.reports.finished_build import BuildCollector
from mlcbuild.cli.reports.profile import Phase, Profile
from mlcbuild.cli.settings.execution import ExecutionOptions, resolve_execution
from mlcbuild.cli.settings.history import HistoryLimits, history_limits
from mlcbuild.cli.settings.remote import RemoteOptions, resolve_remote
from mlcbuild.cli.settings.user_file import user_settings_file
from mlcbuild.cli.sharding.part import part_of
from mlcbuild.cli.workspace.opening import OpenWorkspace, files_searched, open_workspace
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionStatus,
    BuildEvent,
    BuildFinished,
    BuildStarted,
    Notice,
    TargetFinished,
    TargetSkipped,
)
from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.rules.analysis import Analysis, analyse

FETCH_MNEMONIC = "Fetch"
_RECORDED = TargetSkipped | BuildStarted | ActionFinished | Notice | TargetFinished | BuildFinished


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """What a command builds, and the reports that it writes. `jobs` None stands for one per core."""

    patterns: tuple[str, ...]
    configuration: str = ""
    overrides: tuple[str, ...] = ()  # arguments of --set
    jobs: int | None = None
    keep_going: bool = False
    check_determinism: bool = False  # run each action twice, without cached results
    build_report: Path | None = None
    profile: Path | None = None
    events: Path | None = None
    ci: CiReports = field(default_factory=CiReports)
    disk_cache: Path | None = None
    remote: RemoteOptions = field(default_factory=RemoteOptions)
    execution: ExecutionOptions = field(default_factory=ExecutionOptions)
    shard: str = ""  # the argument of --shard
    timings: tuple[Path, ...] = ()
    recache: bool = False  # use no cached result, and replace it
    from_cache_only: bool = False  # run nothing; fail with the list of what has no cached result
    show_log: bool = False
    progress: ProgressChoice = ProgressChoice.AUTO
    verbose: bool = False  # a line for each action that ran
    fetch_only: bool = False  # only the external files that the targets need
    quiet_if_current: bool = False  # print no summary if there was nothing to do
    check: Callable[[Analysis], None] = lambda _: None  # may raise an error before anything is built

    def text(self, options: GlobalOptions) -> str:
        """Everything that decides what is built, for the no-op check."""
        return request_text(
            self.patterns,
            directory=options.directory,
            environment=options.environment,
            configuration=self.configuration,
            overrides=self.overrides,
            disk_cache=self.disk_cache,
            fetch_only=self.fetch_only,
            remote=(self.remote.address, self.remote.upload, self.remote.no_remote),
            shard=self.shard,
            timings=self.timings,
        )


@dataclass(frozen=True, kw_only=True)
class BuildOutcome:
    """The result of a build. `paths` are the outputs of the built targets, relative to the workspace."""

    exit_code: ExitCode
    paths: tuple[str, ...]
    report: dict[str, object]
    workspace: OpenWorkspace
    analysis: Analysis
    directories: dict[str, str]  # label → the target's own directory, relative to the workspace


def run_build(request: BuildRequest, options: GlobalOptions) -> BuildOutcome:
    """Build, and report to the user. A failed build returns an outcome with its exit code.

    Raises MlcbuildError if the build cannot begin.
    """
    session = _Session(request, options)
    failure: BaseException | None = None
    code = ExitCode.INTERNAL
    try:
        with hearing_ctrl_c():
            outcome = session.build()
        code = outcome.exit_code
        return outcome
    except BaseException as error:
        failure, code = error, code_of(error)
        raise
    finally:
        session.close(code, failure)


class _Session:
    """The state of one command: its listeners, its phases, and the reports to write."""

    def __init__(self, request: BuildRequest, options: GlobalOptions) -> None:
        for option, path in (
            ("--build-report", request.build_report),
            ("--profile", request.profile),
            ("--events", request.events),
            *request.ci.files(),
        ):
            if path and not path.absolute().parent.is_dir():
                raise UsageError(f"{option}: there is no directory {path.parent}")
        self._request = request
        self._options = options
        self._style = options.style(sys.stderr)
        self._console: Console | None = None
        self._phases: list[Phase] = []
        self._build_began = 0.0
        self._finished: BuildFinished | None = None
        self._remote_summary: RemoteSummary | None = None
        self._failed: list[ActionFinished] = []
        self._not_cached: list[ActionFinished] = []
        self._without_pin: frozenset[str] = frozenset()  # fetches; a retry does not help them
        self._no_op = NoOpRecorder()
        self._invocation = invocation = str(uuid.uuid4())
        self._report = BuildReport(invocation=invocation)
        self._profile = Profile(invocation=invocation)
        self._events: EventLog | None = None
        self._began = time.time() - options.elapsed()
        self._recorded: list[BuildEvent] = []  # for `mlcbuild log`
        self._records: Path | None = None
        self._root: Path | None = None  # of the workspace, once it is open
        self._collector = BuildCollector() if request.ci.wanted(options.environment) else None
        self._limits = HistoryLimits()
        self._listeners = Listeners(dropped=self._note)
        self._listeners.add("the build report", self._report)
        self._listeners.add("the profile", self._profile)
        self._listeners.add("this command", self._listen)
        self._listeners.add("the no-op record", self._no_op)
        if self._collector:
            self._listeners.add("the reports for CI", self._collector)
        if request.events:
            self._events = EventLog(
                request.events, invocation=invocation, arguments=options.arguments, began=self._began
            )
            name = f"the event log {request.events}"
            try:
                self._events.begin()
                self._listeners.add(name, self._events)
            except OSError as error:
                self._note(f"{name} cannot be written: {reason_of(error)}")

    def build(self) -> BuildOutcome:
        request = self._request
        with self._phase("load"):
            workspace = open_workspace(self._options.directory, to_load=True)
            self._root = workspace.root
            loaded = workspace.load(request.patterns, request.configuration, request.overrides)
            environment, settings = self._options.environment, workspace.settings
            remote = resolve_remote(request.remote, environment, settings, recache=request.recache)
            execution = resolve_execution(request.execution, environment, settings)
            if request.recache or (remote and remote.sends_what_was_found):
                self._no_op.forbid()  # There is something to do each time.
        self._limits = history_limits(environment)
        self._records = workspace.state_directory / RECORD_DIRECTORY
        if self._collector:
            places = {str(label): target.location for label, target in loaded.targets.items()}
            self._collector.locate = places.get
        with self._phase("analyse"):
            part = part_of(
                analyse(loaded, workspace.rules), workspace.root, shard=request.shard, timings=request.timings
            )
            analysis = part.analysis
            self._report.skipped = part.skipped
            cells = {str(label): target for label, target in loaded.targets.items()} if part.skipped else {}
            for label, reason in part.skipped.items():
                axes = {axis: str(cells[label].cell[axis]) for axis in cells[label].axes}
                self._listeners(TargetSkipped(label=label, reason=reason, axes=axes))
            if self._collector:
                for note in part.notes:
                    self._collector.note(note)
            wanted = fetched_targets(analysis) if request.fetch_only else analysis.requested
            targets = targets_of(wanted, output=f"{workspace.settings.output}/{loaded.configuration.name}")
            request.check(analysis)
            self._without_pin = frozenset(
                action.identifier
                for action in analysis.actions
                if action.mnemonic == FETCH_MNEMONIC and not action.pinned_content
            )
        notes = [f"{self._style.warning('note:')} {note}" for note in part.notes]
        self._write([*notes, *(part.reasons if request.verbose else ())])
        if not targets and not request.shard:
            self._note("no targets match" + (" that have external files" if request.fetch_only else ""))
        console = self._console = Console(
            sys.stderr,
            style=self._style,
            live=request.progress is ProgressChoice.AUTO and is_terminal(sys.stderr, self._options.environment),
            keep_log=ActionLogs(
                workspace.state_directory / LOG_DIRECTORY, shown_as=f"{STATE_DIRECTORY}/{LOG_DIRECTORY}"
            ).keep,
            show_log=request.show_log,
            quiet=request.progress is ProgressChoice.QUIET,
            verbose=request.verbose,
        )
        self._listeners.add("progress", console)
        try:
            with (
                self._phase("build"),
                build_parts(
                    workspace,
                    analysis.actions,
                    jobs=request.jobs,
                    execution=execution,
                    keep_going=request.keep_going or request.from_cache_only,  # so that the list is complete
                    from_cache_only=request.from_cache_only,
                    check_determinism=request.check_determinism,
                    recache=request.recache,
                    disk_cache=request.disk_cache,
                    remote=remote,
                    listeners=[self._listeners],
                    say=self._note,
                    invocation=self._invocation,
                ) as parts,
                interrupting(parts.driver.interrupt),
            ):
                try:
                    if notice := network_cache_notice(parts.store.root):
                        self._hint(notice)
                    result = parts.driver.build(analysis.actions, targets)
                finally:
                    self._remote_summary = RemoteSummary.of(parts.remote)
                self._no_op.save(
                    request.text(self._options),
                    parts=parts,
                    observed=loaded.observed
                    | analysis.observed
                    | files_searched(workspace.root, self._options.directory)
                    | {str(user_settings_file(self._options.environment))}
                    | {str(path.absolute()) for path in request.timings},
                    targets=targets,
                    result=result,
                    notes=notes,
                )
        finally:
            console.close()
        from_environment = [failure.environment for failure in result.failures]
        from_environment += [True for target in result.targets if target.environment]
        code = self._exit_code(result.success, result.interrupted, from_environment)
        self._print_summary(code)
        return BuildOutcome(
            exit_code=code,
            paths=tuple(path for target in result.targets if target.success for path in target.outputs),
            report=self._document(code),
            workspace=workspace,
            analysis=analysis,
            directories={target.label: target.directory for target in targets},
        )

    def close(self, code: ExitCode, failure: BaseException | None) -> None:
        """Write the reports. Raises LocalEnvironmentError for a file that cannot be written."""
        errors = []
        request = self._request
        if self._events:
            try:
                self._events.close(exit_code=code, error=str(failure or ""), wall_seconds=self._options.elapsed())
            except (OSError, ValueError) as error:
                errors.append(f"{request.events}: {reason_of(error)}")
        if request.profile:
            trace = self._profile.document(phases=self._phases, build_began=self._build_began)
            errors += _written(request.profile, trace)
        self._write_record(code)
        if request.build_report:
            errors += _written(request.build_report, self._document(code))
        if self._collector:
            build = self._collector.finish(
                exit_code=code,
                failure=failure,
                command=" ".join(without_credentials(argument) for argument in self._options.arguments),
                invocation=self._invocation,
                began=self._began,
                wall_seconds=self._options.elapsed(),
                remote=self._remote_summary,
            )
            errors += request.ci.write(build, root=self._root, environment=self._options.environment)
        if errors and failure is None:
            raise LocalEnvironmentError("a report cannot be written: " + "; ".join(errors))
        for message in errors:
            self._note(f"a report cannot be written: {message}")

    def _write_record(self, code: ExitCode) -> None:
        """Write the build's record for `mlcbuild log`. A full disk loses the record and nothing else."""
        if self._records is None:
            return
        with suppress(OSError):
            write_record(
                self._records,
                self._recorded,
                began=self._began,
                arguments=[without_credentials(argument) for argument in self._options.arguments],
                exit_code=int(code),
                limits=self._limits,
            )

    def _listen(self, event: BuildEvent) -> None:
        if isinstance(event, _RECORDED):
            self._recorded.append(event)
        match event:
            case BuildStarted():
                self._build_began = self._options.elapsed() - event.time
            case ActionFinished(status=ActionStatus.NOT_CACHED):
                self._not_cached.append(event)
            case ActionFinished(status=ActionStatus.FAILED, shared_with=""):
                self._failed.append(event)
            case BuildFinished():
                self._finished = event
            case _:
                pass

    def _exit_code(self, success: bool, interrupted: bool, from_environment: Sequence[bool]) -> ExitCode:
        if interrupted:
            return ExitCode.INTERRUPTED
        if success:
            return ExitCode.OK
        if self._not_cached and not self._failed:
            return ExitCode.WOULD_RUN
        if from_environment and all(from_environment):
            return ExitCode.LOCAL_ENVIRONMENT
        if self._failed and all(
            failed.mnemonic == FETCH_MNEMONIC and failed.identifier not in self._without_pin for failed in self._failed
        ):
            return ExitCode.EXTERNAL_DEPENDENCIES
        return ExitCode.BUILD_FAILED

    def _print_summary(self, code: ExitCode) -> None:
        if self._finished is None or (self._request.quiet_if_current and _nothing_done(self._finished)):
            return
        lines = not_cached_lines(self._not_cached, style=self._style)
        if self._request.progress is not ProgressChoice.QUIET:
            lines += summary_lines(self._finished, wall_seconds=self._options.elapsed(), remote=self._remote_summary)
        if line := retry_line(code):
            lines.append(line)
        if lines:
            self._write(lines)

    def _document(self, code: ExitCode) -> dict[str, object]:
        return self._report.document(exit_code=code, wall_seconds=self._options.elapsed(), remote=self._remote_summary)

    def _note(self, message: str) -> None:
        self._no_op.forbid()
        self._hint(message)

    def _hint(self, message: str) -> None:
        """Print a note that a no-op build need not repeat."""
        if self._collector:
            self._collector.note(message)
        self._write([f"{self._style.warning('note:')} {message}"])

    def _write(self, lines: Sequence[str]) -> None:
        if self._console:
            self._console.say(lines)
        elif lines:
            print(*lines, sep="\n", file=sys.stderr, flush=True)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        start = self._options.elapsed()
        try:
            yield
        finally:
            self._phases.append(Phase(name=name, start=start, end=self._options.elapsed()))


def _nothing_done(finished: BuildFinished) -> bool:
    return all(status is ActionStatus.UP_TO_DATE or not count for status, count in finished.counts)


def _written(path: Path, document: object) -> list[str]:
    try:
        write_json_atomically(path, document)
    except OSError as error:
        return [f"{path}: {error.strerror or error}"]
    return []
