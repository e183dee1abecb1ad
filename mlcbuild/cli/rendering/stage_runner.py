"""Runs stages on cached files for commands that only look, by the executor that builds use."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mlcbuild.cache.disk import DiskStore
from mlcbuild.cli.build.executors import local_executor
from mlcbuild.cli.settings.execution import ExecutionOptions, resolve_execution
from mlcbuild.cli.workspace.opening import OpenWorkspace
from mlcbuild.engine.action import Action
from mlcbuild.engine.action_results import outputs_of, result_of
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, FileEntry, OutcomeKind
from mlcbuild.engine.key_cache import KeyCache
from mlcbuild.engine.keys import publish
from mlcbuild.errors import MlcbuildError

_SCRATCH = "scratch"


@dataclass(frozen=True, kw_only=True)
class StageRun:
    """A stage to be called on files that the disk cache has."""

    action: Action
    inputs: tuple[FileEntry, ...]


@dataclass(frozen=True, kw_only=True)
class StageEnd:
    """`outputs` are in the disk cache, unless `failure` says why there are none."""

    outputs: tuple[FileEntry, ...] = ()
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class StageRunner:
    """`keys` are those of the survey; `environment` has the variables that are settings."""

    workspace: OpenWorkspace
    store: DiskStore
    keys: KeyCache
    environment: Mapping[str, str]

    def run(
        self, runs: Sequence[StageRun], *, keeps: bool, progress: Callable[[int, int], object] = lambda *_: None
    ) -> list[StageEnd]:
        """The ends of the runs, in their order. With `keeps` results are looked up in the disk cache, and kept there.

        `progress` is called with the number of runs that have ended, and of all. Raises MlcbuildError if none can run.
        """
        ends: dict[int, StageEnd] = {}
        if keeps:
            for number, run in enumerate(runs):
                if (outputs := self._cached(run)) is not None:
                    ends[number] = StageEnd(outputs=outputs)
        left = [number for number in range(len(runs)) if number not in ends]
        if left:
            ends |= self._executed(runs, left, keeps=keeps, progress=progress)
        return [ends[number] for number in range(len(runs))]

    def _cached(self, run: StageRun) -> tuple[FileEntry, ...] | None:
        key = self.keys(run.action, run.inputs)
        self.keys.drop(key)
        with suppress(MlcbuildError, ValueError):
            if result := self.store.get(key):
                outputs = outputs_of(result, self.store)
                return None if self.store.missing(entry.digest for entry in outputs) else outputs
        return None

    def _executed(
        self, runs: Sequence[StageRun], left: Sequence[int], *, keeps: bool, progress: Callable[[int, int], object]
    ) -> dict[int, StageEnd]:
        execution = resolve_execution(ExecutionOptions(), self.environment, self.workspace.settings)
        answers: queue.SimpleQueue[ExecutionOutcome] = queue.SimpleQueue()
        ends: dict[int, StageEnd] = {}
        executor = local_executor(
            self.store,
            jobs=len(os.sched_getaffinity(0)),
            scratch=self.workspace.state_directory / _SCRATCH,
            workspace=self.workspace.root,
            execution=execution,
            checks_determinism=False,
            say=lambda _: None,
        )
        try:
            executor.start(answers.put)
            for number in left:
                executor.submit(self._request(runs[number], number))
            while len(ends) < len(left):
                progress(len(runs) - len(left) + len(ends), len(runs))
                try:
                    outcome = answers.get(timeout=0.1)
                except queue.Empty:
                    continue
                number = int(outcome.identifier)
                ends[number] = self._end(runs[number], outcome, keeps=keeps)
        finally:
            executor.close()
        return ends

    def _request(self, run: StageRun, number: int) -> ExecutionRequest:
        action = run.action
        return ExecutionRequest(
            identifier=str(number),
            mnemonic=action.mnemonic,
            command=action.command,
            inputs=run.inputs,
            outputs=action.outputs,
            environment=action.environment,
            requirements=action.requirements,
            allowed_modules=self.keys.modules_of(action),
            toolchains=action.toolchains,
            distributions=self.keys.distributions_of(action),
            code=self.keys.files_of(action),
        )

    def _end(self, run: StageRun, outcome: ExecutionOutcome, *, keeps: bool) -> StageEnd:
        if outcome.kind is not OutcomeKind.SUCCEEDED:
            return StageEnd(failure=outcome.message or outcome.kind.value)
        if keeps:
            with suppress(MlcbuildError, ValueError):
                key = self.keys.take(run.action, run.inputs, self.keys(run.action, run.inputs))
                result = result_of(run.action, outcome.outputs, self.store, worker=outcome.worker)
                publish(self.store, self.store, key, result)
        return StageEnd(outputs=outcome.outputs)
