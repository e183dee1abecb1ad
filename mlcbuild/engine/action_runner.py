"""Actions on their way through executors: inputs first, then a place, then an outcome that may be believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import Action, ExecutionRequirements
from mlcbuild.engine.action_cache_lookup import is_deterministic
from mlcbuild.engine.background import Background
from mlcbuild.engine.build_event_publisher import BuildEventPublisher
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, Executor, FarReaching, OutcomeKind
from mlcbuild.engine.input_fetcher import FetchedInputs, InputFetcher
from mlcbuild.engine.instructions import Execute
from mlcbuild.engine.key_cache import KeyCache
from mlcbuild.engine.keys import ActionKey
from mlcbuild.engine.placement import LOCAL, NoExecutor, place
from mlcbuild.errors import InfrastructureError

_AGAIN = (OutcomeKind.LOST, OutcomeKind.OUT_OF_MEMORY)


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt of an action."""

    execute: Execute
    key: ActionKey
    executor: Executor | None = None  # None until its inputs are in the store
    bound_to: Executor | None = None  # who alone gets at its inputs
    is_cancelled: bool = False

    @property
    def executor_name(self) -> str:
        return "" if self.executor is None else self.executor.name

    @property
    def is_elsewhere(self) -> bool:
        return self.executor_name not in ("", LOCAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The inputs of an action are in the store, or cannot be; a message for the inbox."""

    identifier: str
    supplied: FetchedInputs


class ActionRunner:
    """Used in the thread of the build alone, but for the jobs that it gives to `network`.

    `run_seconds` says how long an action is thought to take, `peak_bytes` how much memory; 0 for unknown.
    """

    def __init__(
        self,
        *,
        executors: Sequence[Executor],
        fetcher: InputFetcher,
        network: Background,
        key_cache: KeyCache,
        build_events: BuildEventPublisher,
        run_seconds: Callable[[Action], float],
        peak_bytes: Callable[[Action], int] = lambda _: 0,
    ) -> None:
        self._executors = tuple(executors)
        self._fetcher = fetcher
        self._network = network
        self._key_cache = key_cache
        self._build_events = build_events
        self._run_seconds = run_seconds
        self._peak_bytes = peak_bytes
        self._runner: dict[str, Attempt] = {}
        self._ended: dict[str, tuple[Attempt, ExecutionOutcome]] = {}
        self._used: Counter[str] = Counter()

    def identifiers(self) -> tuple[str, ...]:
        """Actions that have begun and not ended."""
        return tuple(self._runner)

    def ended(self, identifier: str) -> tuple[Attempt | None, ExecutionOutcome | None]:
        """The last attempt of an action that has ended, and what came of it."""
        return self._ended.get(identifier, (None, None))

    def begin(self, execute: Execute) -> list[ExecutionOutcome]:
        """Fetch inputs, then submit. What ends here and now is returned."""
        action = execute.action
        _, last = self.ended(action.identifier)
        if last is not None and last.kind in _AGAIN:
            self._build_events.notice(f"{action.identifier} runs again: {last.message or 'its executor was lost'}")
        self._runner[action.identifier] = Attempt(
            execute=execute, key=self._key_cache.take(action, execute.inputs, execute.key)
        )
        missing = self._fetcher.lacking(execute.inputs)
        if missing:
            missing = self._brought_here(self._runner[action.identifier], missing)
        if not missing:
            return list(self.prepared(Prepared(identifier=action.identifier, supplied=FetchedInputs())))
        self._network.run(
            lambda: [Prepared(identifier=action.identifier, supplied=self._fetcher.provide(missing, execute.sources))]
        )
        return []

    def _brought_here(self, run: Attempt, missing: tuple[Digest, ...]) -> tuple[Digest, ...]:
        """Those of the missing inputs that are to be brought to this machine: not what the executor gets by itself."""
        if not any(isinstance(executor, FarReaching) for executor in self._executors):
            return missing
        try:
            executor = self._place(run.execute.action)
        except (NoExecutor, InfrastructureError):
            return missing  # It is told when the action is submitted.
        reached = executor.reaches(missing) if isinstance(executor, FarReaching) else frozenset()
        if reached:
            run.bound_to = executor
        return tuple(digest for digest in missing if digest not in reached)

    def _place(self, action: Action) -> Executor:
        return place(action, self._executors, self._used, run_seconds=self._run_seconds(action))

    def prepared(self, told: Prepared) -> Iterator[ExecutionOutcome]:
        """Submit an action whose inputs have come; its outcome where it has one without a run."""
        run = self._runner.get(told.identifier)
        if run is None:
            return
        fault = _fault(run, told)
        if fault is None:
            try:
                self._submit(run)
            except (NoExecutor, InfrastructureError) as error:
                fault = ExecutionOutcome(identifier=told.identifier, kind=OutcomeKind.ENVIRONMENT, message=str(error))
        if fault is not None:
            yield fault

    def _submit(self, run: Attempt) -> None:
        action = run.execute.action
        executor = run.bound_to or self._place(action)
        run.executor = executor
        self._used[executor.name] += 1
        self._build_events.started(action.identifier, action.mnemonic, executor.name)
        executor.submit(
            ExecutionRequest(
                identifier=action.identifier,
                mnemonic=action.mnemonic,
                command=action.command,
                inputs=run.execute.inputs,
                outputs=action.outputs,
                environment=action.environment,
                requirements=_requirements(run.execute),
                expected_bytes=self._peak_bytes(action),
                is_deterministic=is_deterministic(action),
                allowed_modules=self._key_cache.modules_of(action),
                toolchains=action.toolchains,
                distributions=self._key_cache.distributions_of(action),
                code=self._key_cache.files_of(action),
            )
        )

    def end(self, outcome: ExecutionOutcome) -> ExecutionOutcome | None:
        """Take an outcome in: as it is to be believed; None where nobody waits for it."""
        run = self._runner.pop(outcome.identifier, None)
        if run is None:
            return None
        if run.executor is not None:
            self._used[run.executor.name] -= 1
        if outcome.kind is OutcomeKind.SUCCEEDED:
            change = self._fetcher.change_in(run.execute.sources) or self._key_cache.change_in_code(run.execute.action)
            if change:
                outcome = replace(outcome, kind=OutcomeKind.FAILED, message=change, outputs=())
        self._ended[outcome.identifier] = (run, outcome)
        return outcome

    def cancel(self, identifier: str) -> None:
        run = self._runner.get(identifier)
        if run is not None:
            run.is_cancelled = True
            if run.executor is not None:
                run.executor.cancel(identifier)


def _fault(run: Attempt, told: Prepared) -> ExecutionOutcome | None:
    """How an action ends that cannot be submitted."""
    supplied = told.supplied
    if run.is_cancelled:
        kind = OutcomeKind.CANCELLED
    elif supplied.problem:
        kind = OutcomeKind.ENVIRONMENT if supplied.environment else OutcomeKind.FAILED
    elif supplied.missing:
        kind = OutcomeKind.INPUTS_MISSING
    else:
        return None
    return ExecutionOutcome(identifier=told.identifier, kind=kind, message=supplied.problem, missing=supplied.missing)


def _requirements(execute: Execute) -> ExecutionRequirements:
    asked = execute.action.requirements
    return replace(asked, memory_bytes=execute.memory_bytes) if execute.memory_bytes else asked
