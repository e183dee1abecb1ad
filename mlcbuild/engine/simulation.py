"""A build in virtual time, with the scheduler and the placement of real builds. SimulatedExecutor and work are values.

The simulation has what a real build waits for: runs, trips to machines, slow lookups, lost machines, too little memory.
The scheduler and `placement.place` decide everything, as in a real build.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import Action, ExecutionRequirements
from mlcbuild.engine.build_events import PathStep
from mlcbuild.engine.critical_path import Chains
from mlcbuild.engine.executor import ExecutionOutcome, FileEntry, OutcomeKind
from mlcbuild.engine.instructions import (
    Cancel,
    Deliver,
    DigestSources,
    Discover,
    Ending,
    Execute,
    Finished,
    Instruction,
    LookUp,
    ReportAction,
    ReportTarget,
)
from mlcbuild.engine.placement import NoExecutor, place
from mlcbuild.engine.priorities import SecondsOf, unknown_seconds
from mlcbuild.engine.scheduler import Scheduler
from mlcbuild.engine.scheduler_events import (
    ActionsDeclared,
    ActionsDiscovered,
    Cancelled,
    Executed,
    ExecutorLost,
    LookupSlow,
    RequestedTarget,
    ResultFound,
    ResultNotFound,
    SchedulerEvent,
    SourceDigested,
    TargetDelivered,
    TargetsRequested,
)
from mlcbuild.errors import InternalError

Observer = Callable[[Scheduler, Sequence[Instruction]], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The outcome of a run, `seconds` after it began."""

    seconds: float
    outcome: ExecutionOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupResult:
    """What a lookup finds after `seconds`; `outputs` is None where there is no result."""

    seconds: float = 0.0
    outputs: tuple[FileEntry, ...] | None = None


class Work(Protocol):
    """What actions and lookups lead to: all that the scheduler does not decide."""

    def source(self, path: str) -> Digest: ...

    def key_of(self, action: Action, inputs: tuple[FileEntry, ...]) -> Digest: ...

    def look_up(self, action: Action, key: Digest) -> LookupResult: ...

    def run(self, execute: Execute) -> RunResult: ...

    def manifest(self, digest: Digest) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedExecutor:
    """An executor with a worker in each slot. `unmet` says why an action can never run on any of them."""

    name: str
    slots: int
    trip_seconds: float = 0.0
    unmet: Callable[[ExecutionRequirements], str] = lambda _requirements: ""

    def unmet_requirement(self, action: Action) -> str:
        return self.unmet(action.requirements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """An executor loses machines, and with them `count` of the actions that it runs at that time."""

    executor: str
    count: int


@dataclass(slots=True, eq=False, kw_only=True)
class SimulatedRun:
    """An attempt of an action, in seconds since the build began."""

    execute: Execute
    executor: str
    given: float
    start: float = -1.0  # negative: still in the executor's queue
    end: float = -1.0  # negative: it has no outcome yet
    kind: OutcomeKind | None = None
    result: RunResult | None = None


@dataclass(slots=True, kw_only=True)
class _Pool:
    executor: SimulatedExecutor
    free: int
    waiting: deque[SimulatedRun] = field(default_factory=deque)
    running: dict[str, SimulatedRun] = field(default_factory=dict)

    def slots_of(self, run: SimulatedRun) -> int:
        return min(run.execute.action.requirements.cpus, self.executor.slots)


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """The result of a simulated build, which took `seconds`."""

    seconds: float
    success: bool
    runs: tuple[SimulatedRun, ...]  # in the order in which they were given to executors
    reports: dict[str, ReportAction]
    delivered: dict[str, Deliver]
    scheduler: Scheduler

    @property
    def work_seconds(self) -> float:
        """The seconds of all runs and their trips: what one worker would have needed."""
        return sum(run.end - run.start for run in self.runs if run.start >= 0)

    def path(self) -> tuple[PathStep, ...]:
        """The chain of runs that took longest. An action with a shared result waited for the action that made it."""
        graph = self.scheduler.graph
        runs = {run.execute.action.identifier: run for run in self.runs if run.kind is OutcomeKind.SUCCEEDED}
        steps = {
            name: PathStep(identifier=name, mnemonic=run.execute.action.mnemonic, seconds=run.end - run.start)
            for name, run in runs.items()
        }
        ran = {run.execute.key: name for name, run in runs.items()}

        def producers_of(identifier: str) -> list[str]:
            node = graph.actions[identifier]
            names = [producer.name for producer in graph.known_producers_of(node)]
            if node.discovered_by:
                names.append(node.discovered_by)
            if node.ending is Ending.SHARED and node.key in ran:
                names.append(ran[node.key])
            return names

        return Chains(steps, producers_of).longest()


class Simulation:
    """One build. Call `run` once.

    `work` says what really happens, `seconds_of` how long an action is expected to take. A lookup that takes longer
    than `lookup_timeout_seconds` is overtaken. Each of `incidents` happens at its time; Cancelled is an interruption by
    the user. `observe` is called after each step of the scheduler, with its instructions. `jobs = 0` stands for all
    slots.
    """

    def __init__(
        self,
        *,
        actions: Iterable[Action],
        targets: Iterable[RequestedTarget],
        work: Work,
        executors: Sequence[SimulatedExecutor],
        seconds_of: SecondsOf = unknown_seconds,
        jobs: int = 0,
        keep_going: bool = False,
        lookup_timeout_seconds: float = float("inf"),
        incidents: Iterable[tuple[float, Loss | Cancelled]] = (),
        observe: Observer | None = None,
    ) -> None:
        self._work = work
        self._executors = tuple(executors)
        self._seconds_of = seconds_of
        self._lookup_timeout = lookup_timeout_seconds
        self._observe = observe
        self._pools = {executor.name: _Pool(executor=executor, free=executor.slots) for executor in executors}
        self._used: Counter[str] = Counter()
        self._runs: list[SimulatedRun] = []
        self._current: dict[str, SimulatedRun] = {}
        self._reports: dict[str, ReportAction] = {}
        self._delivered: dict[str, Deliver] = {}
        self._now = 0.0
        self._end: Finished | None = None
        self._agenda: list[tuple[float, int, SchedulerEvent | SimulatedRun | Loss]] = []
        self._entries = 0
        self._scheduler = Scheduler(
            key_of=work.key_of,
            jobs=jobs or sum(executor.slots for executor in executors),
            keep_going=keep_going,
            seconds_of=seconds_of,
        )
        self._first_events: list[SchedulerEvent] = [
            ActionsDeclared(actions=tuple(actions)),
            TargetsRequested(targets=tuple(targets)),
        ]
        for when, incident in incidents:
            self._at(when, incident)

    def run(self) -> Simulated:
        """Raises InternalError where the build stands still."""
        self._handle(self._first_events)
        while self._end is None:
            if not self._agenda:
                raise InternalError(f"the simulated build stands still after {self._now} seconds")
            self._now, _, incident = heapq.heappop(self._agenda)
            self._handle(self._happens(incident))
        return Simulated(
            seconds=self._now,
            success=self._end.success,
            runs=tuple(self._runs),
            reports=self._reports,
            delivered=self._delivered,
            scheduler=self._scheduler,
        )

    def _at(self, when: float, incident: SchedulerEvent | SimulatedRun | Loss) -> None:
        self._entries += 1
        heapq.heappush(self._agenda, (when, self._entries, incident))

    def _handle(self, events: list[SchedulerEvent]) -> None:
        while events and self._end is None:
            instructions = self._scheduler.handle(*events)
            if self._observe is not None:
                self._observe(self._scheduler, instructions)
            events = [answer for instruction in instructions for answer in self._carry_out(instruction)]

    def _happens(self, incident: SchedulerEvent | SimulatedRun | Loss) -> list[SchedulerEvent]:
        match incident:
            case SimulatedRun(result=result):
                if incident.kind is not None or result is None:
                    return []  # It was lost or cancelled before.
                self._end_run(incident, result.outcome.kind)
                return [Executed(outcome=result.outcome)]
            case Loss(executor=name, count=count):
                lost = list(self._pools[name].running.values())[:count]
                for run in lost:
                    self._end_run(run, OutcomeKind.LOST)
                return [ExecutorLost(identifiers=tuple(run.execute.action.identifier for run in lost))] if lost else []
            case _:
                return [incident]

    def _carry_out(self, instruction: Instruction) -> list[SchedulerEvent]:
        match instruction:
            case DigestSources(paths=paths):
                return [SourceDigested(path=path, digest=self._work.source(path)) for path in paths]
            case LookUp():
                return self._look_up(instruction)
            case Execute():
                return self._execute(instruction)
            case Cancel(identifier=identifier):
                return self._cancel(identifier)
            case Discover(action=action, manifest=digest):
                assert action.discoverer is not None
                found = action.discoverer(discovering=action.identifier, manifest=self._work.manifest(digest))
                return [ActionsDiscovered(identifier=action.identifier, discovery=found)]
            case Deliver(label=label):
                self._delivered[label] = instruction
                return [TargetDelivered(label=label)]
            case ReportAction(action=action):
                self._reports[action.identifier] = instruction
            case ReportTarget(label=label, success=False):
                self._delivered.pop(label, None)
            case Finished():
                self._end = instruction
            case _:
                pass
        return []

    def _look_up(self, wanted: LookUp) -> list[SchedulerEvent]:
        identifier = wanted.action.identifier
        answer = self._work.look_up(wanted.action, wanted.key)
        event: SchedulerEvent = ResultNotFound(identifier=identifier, key=wanted.key)
        if answer.outputs is not None:
            event = ResultFound(identifier=identifier, key=wanted.key, outputs=answer.outputs)
        if answer.seconds <= 0:
            return [event]
        if answer.seconds > self._lookup_timeout:
            self._at(self._now + self._lookup_timeout, LookupSlow(identifier=identifier))
        self._at(self._now + answer.seconds, event)
        return []

    def _execute(self, execute: Execute) -> list[SchedulerEvent]:
        action = execute.action
        try:
            chosen = place(action, self._executors, self._used, run_seconds=self._seconds_of(action))
        except NoExecutor as error:
            outcome = ExecutionOutcome(identifier=action.identifier, kind=OutcomeKind.ENVIRONMENT, message=str(error))
            return [Executed(outcome=outcome)]
        run = SimulatedRun(execute=execute, executor=chosen.name, given=self._now)
        self._runs.append(run)
        self._current[action.identifier] = run
        self._used[chosen.name] += 1
        pool = self._pools[chosen.name]
        pool.waiting.append(run)
        self._start(pool)
        return []

    def _start(self, pool: _Pool) -> None:
        while pool.waiting and pool.slots_of(pool.waiting[0]) <= pool.free:
            run = pool.waiting.popleft()
            pool.free -= pool.slots_of(run)
            pool.running[run.execute.action.identifier] = run
            run.start = self._now
            run.result = self._work.run(run.execute)
            self._at(self._now + pool.executor.trip_seconds + run.result.seconds, run)

    def _cancel(self, identifier: str) -> list[SchedulerEvent]:
        run = self._current.get(identifier)
        if run is None or run.kind is not None:
            return []
        self._end_run(run, OutcomeKind.CANCELLED)
        return [Executed(outcome=ExecutionOutcome(identifier=identifier, kind=OutcomeKind.CANCELLED))]

    def _end_run(self, run: SimulatedRun, kind: OutcomeKind) -> None:
        run.end, run.kind = self._now, kind
        pool = self._pools[run.executor]
        self._used[run.executor] -= 1
        if run.start < 0:
            pool.waiting.remove(run)
            return
        del pool.running[run.execute.action.identifier]
        pool.free += pool.slots_of(run)
        self._start(pool)
