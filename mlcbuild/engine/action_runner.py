"""Runs actions on executors: fetches their inputs, chooses an executor, submits, and checks the outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import Action, CachePolicy, ExecutionRequirements, StageCall
from mlcbuild.engine.action_cache_lookup import is_deterministic
from mlcbuild.engine.action_titles import with_title
from mlcbuild.engine.background import Background
from mlcbuild.engine.build_event_publisher import BuildEventPublisher
from mlcbuild.engine.executor import (
    ExecutionOutcome,
    ExecutionRequest,
    Executor,
    FetchesInputs,
    OutcomeKind,
    ReadsInPlace,
)
from mlcbuild.engine.input_fetcher import FetchedInputs, InputFetcher
from mlcbuild.engine.input_names import with_input_names
from mlcbuild.engine.instructions import Execute
from mlcbuild.engine.key_cache import KeyCache
from mlcbuild.engine.keys import ActionKey
from mlcbuild.engine.placement import LOCAL, NoExecutor, place
from mlcbuild.engine.shared_form import remade_among
from mlcbuild.errors import InfrastructureError

_AGAIN = (OutcomeKind.LOST, OutcomeKind.OUT_OF_MEMORY)


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt of an action."""

    execute: Execute
    key: ActionKey
    executor: Executor | None = None  # None until it is submitted
    bound_to: Executor | None = None  # the only one that can fetch its inputs
    in_place: tuple[tuple[Digest, str], ...] = ()  # sources that it reads where they lie
    is_cancelled: bool = False

    @property
    def executor_name(self) -> str:
        return "" if self.executor is None else self.executor.name

    @property
    def is_elsewhere(self) -> bool:
        return self.executor_name not in ("", LOCAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A message for the inbox: the inputs of an action are in the store, or cannot be brought there."""

    identifier: str
    fetched: FetchedInputs


class ActionRunner:
    """Used in the thread of the build. Fetching of inputs is done in the threads of `network`.

    `run_seconds` says how long an action is expected to take, `peak_bytes` how much memory; 0: unknown.
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
        self._attempts: dict[str, Attempt] = {}
        self._ended: dict[str, tuple[Attempt, ExecutionOutcome]] = {}
        self._used: Counter[str] = Counter()

    def identifiers(self) -> tuple[str, ...]:
        """The actions that have begun and not ended."""
        return tuple(self._attempts)

    def ended(self, identifier: str) -> tuple[Attempt | None, ExecutionOutcome | None]:
        """The last attempt of an action that has ended, and its outcome."""
        return self._ended.get(identifier, (None, None))

    def begin(self, execute: Execute) -> list[ExecutionOutcome]:
        """Fetch the inputs, then submit. Returns the outcome where it is known at once."""
        action = execute.action
        _, last = self.ended(action.identifier)
        if last is not None and last.kind in _AGAIN:
            reason = with_title(last.message, action) or "its executor was lost"
            self._build_events.notice(f"{action.title} runs again: {reason}")
        self._attempts[action.identifier] = Attempt(
            execute=execute, key=self._key_cache.take(action, execute.inputs, execute.key)
        )
        missing = self._fetcher.missing(execute.inputs)
        if remade := remade_among(execute.inputs, missing):
            return [ExecutionOutcome(identifier=action.identifier, kind=OutcomeKind.INPUTS_MISSING, missing=remade)]
        if missing:
            missing = self._needed_here(self._attempts[action.identifier], missing)
        if not missing:
            return list(self.prepared(Prepared(identifier=action.identifier, fetched=FetchedInputs())))
        in_place = self._read_in_place(self._attempts[action.identifier], missing)
        missing = tuple(digest for digest in missing if digest not in in_place)
        fetch = partial(self._fetcher.fetch, missing, execute.sources, in_place=tuple(in_place.values()))
        self._network.run(lambda: [Prepared(identifier=action.identifier, fetched=fetch())])
        return []

    def _read_in_place(self, attempt: Attempt, missing: tuple[Digest, ...]) -> dict[Digest, str]:
        """The missing inputs that a stage of mlcbuild's own, which changes no file, can read in the workspace."""
        execute = attempt.execute
        found = self._fetcher.in_place(missing, execute.sources)
        is_own = isinstance(execute.action.command, StageCall) and not self._key_cache.files_of(execute.action)
        if not found or not is_own or attempt.bound_to is not None:
            return {}
        if any(entry.is_executable and entry.digest in found for entry in execute.inputs):
            return {}
        try:
            executor = self._place(execute.action)
        except (NoExecutor, InfrastructureError):
            return {}  # The error is told when the action is submitted.
        if not (isinstance(executor, ReadsInPlace) and executor.reads_in_place):
            return {}
        attempt.bound_to = executor
        attempt.in_place = tuple((digest, self._fetcher.location(path)) for digest, path in found.items())
        return found

    def _needed_here(self, attempt: Attempt, missing: tuple[Digest, ...]) -> tuple[Digest, ...]:
        """The missing inputs that have to come to this machine. The executor may fetch the others itself."""
        if not any(isinstance(executor, FetchesInputs) for executor in self._executors):
            return missing
        try:
            executor = self._place(attempt.execute.action)
        except (NoExecutor, InfrastructureError):
            return missing  # The error is told when the action is submitted.
        fetchable = executor.can_fetch(missing) if isinstance(executor, FetchesInputs) else frozenset()
        if fetchable:
            attempt.bound_to = executor
        return tuple(digest for digest in missing if digest not in fetchable)

    def _place(self, action: Action) -> Executor:
        return place(action, self._executors, self._used, run_seconds=self._run_seconds(action))

    def prepared(self, message: Prepared) -> Iterator[ExecutionOutcome]:
        """Submit an action whose inputs are fetched. Yields an outcome where it has one without a run."""
        attempt = self._attempts.get(message.identifier)
        if attempt is None:
            return
        failure = _failure_before_run(attempt, message)
        if failure is None:
            try:
                self._submit(attempt)
            except (NoExecutor, InfrastructureError) as error:
                kind = OutcomeKind.NO_EXECUTOR if isinstance(error, NoExecutor) else OutcomeKind.ENVIRONMENT
                failure = ExecutionOutcome(identifier=message.identifier, kind=kind, message=str(error))
        if failure is not None:
            yield failure

    def _submit(self, attempt: Attempt) -> None:
        action = attempt.execute.action
        executor = attempt.bound_to or self._place(action)
        attempt.executor = executor
        self._used[executor.name] += 1
        self._build_events.started(attempt.execute, executor.name)
        executor.submit(
            ExecutionRequest(
                identifier=action.identifier,
                mnemonic=action.mnemonic,
                command=action.command,
                inputs=attempt.execute.inputs,
                outputs=action.outputs,
                environment=action.environment,
                requirements=_requirements(attempt.execute),
                expected_bytes=self._peak_bytes(action),
                is_deterministic=is_deterministic(action),
                is_reproducible=action.cache is not CachePolicy.NON_REPRODUCIBLE,
                allowed_modules=self._key_cache.modules_of(action),
                toolchains=action.toolchains,
                distributions=self._key_cache.distributions_of(action),
                code=self._key_cache.files_of(action),
                is_test=action.is_test,
                in_place=attempt.in_place,
            )
        )

    def end(self, outcome: ExecutionOutcome) -> ExecutionOutcome | None:
        """Take in an outcome. Returns it, or a failure where a source or code changed; None where no run is known."""
        attempt = self._attempts.pop(outcome.identifier, None)
        if attempt is None:
            return None
        if attempt.executor is not None:
            self._used[attempt.executor.name] -= 1
        if outcome.notice:
            self._build_events.notice(with_title(outcome.notice, attempt.execute.action))
        if outcome.kind is OutcomeKind.SUCCEEDED:
            change = self._fetcher.change_in(attempt.execute.sources) or self._key_cache.change_in_code(
                attempt.execute.action
            )
            if change:
                outcome = replace(outcome, kind=OutcomeKind.FAILED, message=change, outputs=())
        elif outcome.kind is OutcomeKind.FAILED:
            change = self._fetcher.change_in(attempt.execute.sources) if attempt.in_place else ""
            message = change or with_input_names(outcome.message, attempt.execute.action)
            outcome = replace(outcome, message=message)
        self._ended[outcome.identifier] = (attempt, outcome)
        return outcome

    def cancel(self, identifier: str) -> None:
        attempt = self._attempts.get(identifier)
        if attempt is not None:
            attempt.is_cancelled = True
            if attempt.executor is not None:
                attempt.executor.cancel(identifier)


def _failure_before_run(attempt: Attempt, message: Prepared) -> ExecutionOutcome | None:
    """The outcome of an action that cannot be submitted; None where it can."""
    fetched = message.fetched
    if attempt.is_cancelled:
        kind = OutcomeKind.CANCELLED
    elif fetched.error:
        kind = OutcomeKind.ENVIRONMENT if fetched.environment else OutcomeKind.FAILED
    elif fetched.missing:
        kind = OutcomeKind.INPUTS_MISSING
    else:
        return None
    return ExecutionOutcome(identifier=message.identifier, kind=kind, message=fetched.error, missing=fetched.missing)


def _requirements(execute: Execute) -> ExecutionRequirements:
    asked = execute.action.requirements
    return replace(asked, memory_bytes=execute.memory_bytes) if execute.memory_bytes else asked
