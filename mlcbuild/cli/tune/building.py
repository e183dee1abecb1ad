"""Builds for `tune`: what can be chosen of the kernels of libraries, and candidates with their measurements."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.cli.arguments.options import RECORD_DIRECTORY
from mlcbuild.cli.build.build_recorder import BuildRecorder
from mlcbuild.cli.build.ending import BuildEnding
from mlcbuild.cli.build.interruption import hearing_ctrl_c, interrupting
from mlcbuild.cli.build.parts import BuildParts, build_parts
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output.errors import code_of
from mlcbuild.cli.settings.execution import ResolvedExecution
from mlcbuild.cli.settings.history import HistoryLimits
from mlcbuild.cli.settings.remote import ResolvedRemote
from mlcbuild.cli.tune.plan import Trial, TunableKernel
from mlcbuild.cli.workspace.opening import OpenWorkspace
from mlcbuild.engine.action import Action, Artifact, DiscoveredArtifacts, JsonValue
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, BuildEvent
from mlcbuild.engine.build_result import BuildResult
from mlcbuild.engine.scheduler_events import RequestedTarget
from mlcbuild.rules.analysis import Analysis
from mlcbuild.rules.tuning_actions import (
    CANDIDATES,
    Candidate,
    DescribedKernel,
    TunedLibrary,
    described_kernels,
    with_listings,
)
from mlcbuild.runtime.measuring import measurement as forms
from mlcbuild.runtime.measuring.candidate_list import CandidateList
from mlcbuild.runtime.measuring.measurement import Measurement, MeasuringDevice

_LABEL = "tune"


@dataclass(frozen=True, kw_only=True)
class TuneBuilder:
    """How `tune` builds: as `build` does with the same options. `say` is called with notes for people.

    Each build has a record, as those of `build` have: `arguments` are the command line, and `limits` those of records.
    """

    workspace: OpenWorkspace
    analysis: Analysis
    execution: ResolvedExecution
    remote: ResolvedRemote | None
    disk_cache: Path | None
    jobs: int | None
    arguments: tuple[str, ...]
    limits: HistoryLimits
    say: Callable[[str], object] = field(compare=False)

    def tunable(self, libraries: Sequence[TunedLibrary]) -> tuple[TunableKernel, ...]:
        """The kernels of libraries that leave a choice, each once. Raises BuildError where a library does not build so
        far."""
        wanted = [DiscoveredArtifacts(action=each.partition.identifier, group=CANDIDATES) for each in libraries]
        finished = _Finished()
        whole = with_listings(self.analysis.actions, libraries)
        with self._opened(whole, [finished]) as opened:
            parts, result = opened.parts, self._build(opened, whole, wanted)
            if (error := result.error()) is not None:
                raise error
            found: dict[str, TunableKernel] = {}
            for library in libraries:
                layers = _layers(finished, parts, library)
                described = finished.bytes_of(library.partition.identifier, "out/manifest.json", parts)
                for kernel in described_kernels(described):
                    listed = _listed(finished, parts, library, kernel)
                    if listed is not None and listed.shapes and kernel.name not in found:
                        found[kernel.name] = TunableKernel(
                            library=library,
                            text=kernel.text,
                            listed=listed,
                            calls=layers if kernel.is_repeated else 1,
                        )
        return tuple(found.values())

    def measure(
        self,
        trials: Sequence[Trial],
        *,
        seconds: float,
        alone: bool,
        measured: Callable[[Trial, Sequence[Measurement]], object],
    ) -> BuildResult:
        """Build the candidates and measure them; `measured` is called for each as soon as it is known what came of it,
        also where it does not compile. Of one that could not be built or measured because of the machine, nothing is
        known."""
        actions: dict[str, Action] = {}
        wanted: list[Artifact] = []
        of_measurement: dict[str, Trial] = {}
        of_candidate: dict[str, Trial] = {}
        for trial in trials:
            library, kernel = trial.kernel.library, trial.kernel
            candidate, untuned = candidates_of(trial)
            tune = library.measurement(
                kernel.name,
                candidate,
                untuned,
                number=trial.number,
                sizes=kernel.listed.sizes,
                seconds=seconds,
                alone=alone,
            )
            needed = (*candidate.actions, *untuned.actions, library.list_action(kernel.name), tune)
            actions |= {action.identifier: action for action in needed}
            of_measurement[tune.identifier] = trial
            of_candidate |= {action.identifier: trial for action in candidate.actions}
            wanted.append(tune.output(tune.outputs[0]))
        building: list[BuildParts] = []

        def hear(event: BuildEvent) -> None:
            if not isinstance(event, ActionFinished):
                return
            (parts,) = building
            if event.identifier in of_measurement and event.output_files:
                data = _bytes(parts, event.output_files[0].digest)
                measured(of_measurement[event.identifier], forms.from_json(data))
            elif event.identifier in of_candidate and is_candidates_fault(event):
                trial = of_candidate[event.identifier]
                failure = Measurement(
                    outcome=forms.NOT_BUILT,
                    device=MeasuringDevice(name=""),
                    sizes=trial.kernel.listed.sizes[0],
                    message=event.message,
                )
                measured(trial, [failure])

        whole = [*self.analysis.actions, *actions.values()]
        with self._opened(whole, [hear]) as opened:
            building.append(opened.parts)
            return self._build(opened, whole, wanted, answers=frozenset((*of_candidate, *of_measurement)))

    def candidate_libraries(self, trials: Sequence[Trial]) -> dict[tuple[str, int], bytes]:
        """The libraries of candidates that compile, by kernel and number; the number 0 is the default."""
        actions: dict[str, Action] = {}
        places: dict[str, tuple[str, int]] = {}
        wanted: list[Artifact] = []
        for trial in trials:
            for number, candidate in zip((trial.number, 0), candidates_of(trial), strict=True):
                actions |= {action.identifier: action for action in candidate.actions}
                places[candidate.library.action] = (trial.kernel.name, number)
                if candidate.library not in wanted:
                    wanted.append(candidate.library)
        finished = _Finished()
        whole = [*self.analysis.actions, *actions.values()]
        with self._opened(whole, [finished]) as opened:
            parts, result = opened.parts, self._build(opened, whole, wanted)
            found = {
                place: _bytes(parts, files.output_files[0].digest)
                for identifier, place in places.items()
                if (files := finished.by_identifier.get(identifier)) is not None and files.output_files
            }
        if (error := result.error()) is not None and not found:
            raise error
        return found

    @contextmanager
    def _opened(
        self, actions: Sequence[Action], listeners: Sequence[Callable[[BuildEvent], object]]
    ) -> Iterator[_OpenBuild]:
        recorder, ending = BuildRecorder(arguments=self.arguments, began=time.time()), BuildEnding()
        with build_parts(
            self.workspace,
            actions,
            jobs=self.jobs,
            execution=self.execution,
            keep_going=True,
            check_determinism=False,
            recache=False,
            disk_cache=self.disk_cache,
            remote=self.remote,
            listeners=[recorder, ending, *listeners],
            say=self.say,
        ) as parts:
            yield _OpenBuild(parts=parts, recorder=recorder, ending=ending)

    def _build(
        self,
        opened: _OpenBuild,
        actions: Sequence[Action],
        wanted: Sequence[Artifact],
        *,
        answers: frozenset[str] = frozenset(),
    ) -> BuildResult:
        """Build, and write the record. What fails in `answers` because of what it is is no failure of the build."""
        target = RequestedTarget(label=_LABEL, directory=_LABEL, outputs=(), builds=tuple(wanted))
        driver, code = opened.parts.driver, ExitCode.INTERNAL
        try:
            with hearing_ctrl_c(), interrupting(driver.interrupt):
                result = driver.build(actions, [target])
            code = opened.ending.exit_code(result, answers=answers - failures_of_the_machine(result))
            return result
        except BaseException as error:
            code = code_of(error)
            raise
        finally:
            opened.recorder.write(self.workspace.state_directory / RECORD_DIRECTORY, int(code), self.limits)


def failures_of_the_machine(result: BuildResult) -> frozenset[str]:
    """The actions that failed because of a full disk, a lack of memory, or a missing driver."""
    return frozenset(failure.identifier for failure in result.failures if failure.environment)


def is_candidates_fault(event: ActionFinished) -> bool:
    """Whether an action failed because of what it compiles. A full disk or a lack of memory says nothing of that."""
    return event.status is ActionStatus.FAILED and not event.environment


def candidates_of(trial: Trial) -> tuple[Candidate, Candidate]:
    """The candidate and the kernel with its default shape."""
    library, kernel = trial.kernel.library, trial.kernel
    tuned: dict[str, JsonValue] = {"rule": kernel.listed.rule, "shape": dict(trial.shape), "record": ""}
    return (
        library.candidate(kernel.name, tuned, number=trial.number),
        library.candidate(kernel.name, None, number=0),
    )


@dataclass(frozen=True, kw_only=True)
class _OpenBuild:
    """The parts of one build, and what listens to it for its record."""

    parts: BuildParts
    recorder: BuildRecorder
    ending: BuildEnding


class _Finished:
    """Remembers the actions that ended."""

    def __init__(self) -> None:
        self.by_identifier: dict[str, ActionFinished] = {}

    def __call__(self, event: BuildEvent) -> None:
        if isinstance(event, ActionFinished):
            self.by_identifier[event.identifier] = event

    def bytes_of(self, identifier: str, path: str, parts: BuildParts) -> bytes:
        event = self.by_identifier[identifier]
        return _bytes(parts, next(entry.digest for entry in event.output_files if entry.path == path))


def _bytes(parts: BuildParts, digest: Digest) -> bytes:
    """A blob of this build, which may still be in the remote cache alone."""
    if parts.store.missing([digest]) and parts.remote is not None:
        parts.remote.fetch([digest], parts.store)
    return parts.store.read(digest)


def _listed(
    finished: _Finished, parts: BuildParts, library: TunedLibrary, kernel: DescribedKernel
) -> CandidateList | None:
    action = library.list_action(kernel.name)
    if action.identifier not in finished.by_identifier:
        return None  # a kernel of another language, which has no list
    return CandidateList.read(json.loads(finished.bytes_of(action.identifier, action.outputs[0], parts)))


def _layers(finished: _Finished, parts: BuildParts, library: TunedLibrary) -> int:
    """How many layers the library's model has; 1 where that is not known."""
    found = [
        event
        for event in finished.by_identifier.values()
        if event.mnemonic == "ConfigureModel" and event.owner == library.owner
    ]
    for event in found:
        for entry in event.output_files:
            if entry.path == "out/model.json":
                document: Mapping[str, Any] = json.loads(_bytes(parts, entry.digest))
                return int(document["layers"]["count"])
    return 1
