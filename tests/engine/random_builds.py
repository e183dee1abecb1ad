"""Random builds for the scheduler: a world that carries out its instructions, with failures."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.executor import ExecutionOutcome, FileEntry, OutcomeKind
from mlcbuild.engine.instructions import (
    Cancel,
    Deliver,
    DigestSources,
    Discover,
    Execute,
    Finished,
    Instruction,
    LookUp,
    Publish,
    ReportAction,
    ReportTarget,
)
from mlcbuild.engine.invariants import validate
from mlcbuild.engine.scheduler import Scheduler
from mlcbuild.engine.scheduler_events import (
    ActionsDeclared,
    ActionsDiscovered,
    BlobsMissing,
    Cancelled,
    Executed,
    ExecutorLost,
    LookupSlow,
    ResultFound,
    ResultNotFound,
    SchedulerEvent,
    SourceDigested,
    SourceUnavailable,
    TargetDelivered,
    TargetsRequested,
)
from mlcbuild.engine.transitions import NodeState
from tests.engine.random_graphs import Graph, digest_of, entries_of, key_of, outputs_of


@dataclass
class Faults:
    """How many of each may still happen, and how likely each is when it could."""

    losses: int = 0
    missing: int = 0
    shortages: int = 0  # of memory
    slow: int = 0  # lookups that are not waited for
    cancel_at: int = -1  # the step before which the build is cancelled
    likelihood: float = 0.2


@dataclass
class World:
    """Carries instructions out in random order; keeps a store and an action cache from build to build."""

    chance: random.Random
    blobs: dict[Digest, str] = field(default_factory=dict)
    results: dict[Digest, tuple[FileEntry, ...]] = field(default_factory=dict)

    def build(self, graph: Graph, *, keep_going: bool = True, jobs: int = 3, faults: Faults | None = None) -> Build:
        return Build(self, graph, keep_going=keep_going, jobs=jobs, faults=faults or Faults())


class Build:
    """One build. Making it runs the build to its end, and validates every step."""

    def __init__(self, world: World, graph: Graph, *, keep_going: bool, jobs: int, faults: Faults) -> None:
        self.world, self.graph, self.faults, self.chance = world, graph, faults, world.chance
        self.scheduler = Scheduler(key_of=key_of, jobs=jobs, keep_going=keep_going)
        self.executed: Counter[str] = Counter()
        self.finished_runs: Counter[Digest] = Counter()
        self.looked_up: Counter[Digest] = Counter()
        self.reports: dict[str, ReportAction] = {}
        self.delivered: dict[str, tuple[FileEntry, ...]] = {}
        self.undelivered: dict[str, ReportTarget] = {}
        self.published: set[Digest] = set()
        self.succeeded: set[Digest] = set()
        self.known_results = set(world.results)
        self.executed_keys: set[Digest] = set()
        self.end: Finished | None = None
        self.steps = 0
        self._open: list[Instruction] = []
        self._slow: set[int] = set()  # lookups that were told to be slow, by identity
        self._stopped: set[str] = set()  # actions that were told to stop
        self._tell(ActionsDeclared(actions=graph.actions))
        self._tell(TargetsRequested(targets=graph.targets))
        while self.end is None:
            if self.steps == faults.cancel_at:
                self._tell(Cancelled())
                self.steps += 1
                continue
            assert self._open, "the build stands still"
            self._tell(*self._carry_out(self._open.pop(self.chance.randrange(len(self._open)))))
            self.steps += 1
            assert self.steps < 100_000, "the build does not end"

    def _tell(self, *told: SchedulerEvent) -> None:
        stopped = self.scheduler.cancelled or self.scheduler.stopped_by
        for instruction in self.scheduler.handle(*told):
            assert self.end is None, "an instruction after the last one"
            match instruction:
                case Execute():
                    assert not stopped, "something started after the build was to stop"
                    graph = self.scheduler.graph
                    producers = graph.known_producers_of(graph.actions[instruction.action.identifier])
                    assert all(producer.state is NodeState.DONE for producer in producers), "run without its inputs"
                    self.executed_keys.add(instruction.key)
                    self._stopped.discard(instruction.action.identifier)
                    self._open.append(instruction)
                case Cancel(identifier=identifier):
                    self._stopped.add(identifier)
                case LookUp() | Discover() | Deliver():
                    if isinstance(instruction, LookUp):
                        self.looked_up[instruction.key] += 1
                    assert not stopped or not isinstance(instruction, LookUp)
                    self._open.append(instruction)
                case DigestSources():
                    self._open += [DigestSources(paths=(path,)) for path in instruction.paths]
                case Publish():
                    assert instruction.key in self.succeeded, "published before it succeeded"
                    self.published.add(instruction.key)
                    self.world.results[instruction.key] = instruction.outputs
                case ReportAction():
                    self.reports[instruction.action.identifier] = instruction
                case ReportTarget():
                    if not instruction.success:
                        self.undelivered[instruction.label] = instruction
                case Finished():
                    self.end = instruction
                case _:
                    pass
        validate(self.scheduler)

    def _happens(self) -> bool:
        return self.chance.random() < self.faults.likelihood

    def _cancel_pending(self) -> bool:
        return self.scheduler.cancelled and self.chance.random() < 0.7

    def _carry_out(self, instruction: Instruction) -> list[SchedulerEvent]:
        world = self.world
        match instruction:
            case DigestSources(paths=(path,)):
                if path not in self.graph.sources:
                    return [SourceUnavailable(path=path, message=f"{path} is absent")]
                text = self.graph.sources[path]
                world.blobs[digest_of(text)] = text
                return [SourceDigested(path=path, digest=digest_of(text))]
            case LookUp(action=action, key=key):
                if self.faults.slow > 0 and id(instruction) not in self._slow and self._happens():
                    self.faults.slow -= 1
                    self._slow.add(id(instruction))
                    self._open.append(instruction)
                    return [LookupSlow(identifier=action.identifier)]
                outputs = world.results.get(key)
                if outputs is None:
                    return [ResultNotFound(identifier=action.identifier, key=key)]
                self._lose_blobs(outputs)
                return [ResultFound(identifier=action.identifier, key=key, outputs=outputs)]
            case Execute():
                return self._run(instruction)
            case Discover(action=action, manifest=manifest):
                if manifest not in world.blobs:
                    return [BlobsMissing(needed_by=action.identifier, digests=(manifest,))]
                assert action.discoverer is not None
                found = action.discoverer(discovering=action.identifier, manifest=world.blobs[manifest].encode())
                return [ActionsDiscovered(identifier=action.identifier, discovery=found)]
            case Deliver(label=label, files=files):
                gone = tuple(entry.digest for entry in files if entry.digest not in world.blobs)
                if gone:
                    self._restore_sources()
                    return [BlobsMissing(needed_by=label, digests=gone)]
                self.delivered[label] = files
                return [TargetDelivered(label=label)]
        raise AssertionError(instruction)

    def _restore_sources(self) -> None:
        self.world.blobs |= {digest_of(text): text for text in self.graph.sources.values()}

    def _lose_blobs(self, outputs: tuple[FileEntry, ...]) -> None:
        if self.faults.missing > 0 and outputs and self._happens():
            self.faults.missing -= 1
            self.world.blobs.pop(self.chance.choice(outputs).digest, None)

    def _run(self, request: Execute) -> list[SchedulerEvent]:
        identifier = request.action.identifier
        self.executed[identifier] += 1
        if self._cancel_pending() or (identifier in self._stopped and self.chance.random() < 0.7):
            return [Executed(outcome=ExecutionOutcome(identifier=identifier, kind=OutcomeKind.CANCELLED))]
        if self.faults.losses > 0 and self._happens():
            self.faults.losses -= 1
            if self.chance.random() < 0.5:
                return [ExecutorLost(identifiers=(identifier,))]
            return [Executed(outcome=ExecutionOutcome(identifier=identifier, kind=OutcomeKind.LOST))]
        if self.faults.shortages > 0 and self._happens():
            self.faults.shortages -= 1
            asked = max(request.memory_bytes, 1)
            outcome = ExecutionOutcome(identifier=identifier, kind=OutcomeKind.OUT_OF_MEMORY, peak_bytes=asked)
            return [Executed(outcome=outcome)]
        self._restore_sources()
        gone = tuple(entry.digest for entry in request.inputs if entry.digest not in self.world.blobs)
        if gone:
            outcome = ExecutionOutcome(identifier=identifier, kind=OutcomeKind.INPUTS_MISSING, missing=gone)
            return [Executed(outcome=outcome)]
        made = outputs_of(request.action, request.inputs)
        if made is None:
            return [
                Executed(
                    outcome=ExecutionOutcome(identifier=identifier, kind=OutcomeKind.FAILED, message="it is fragile")
                )
            ]
        self.world.blobs |= {digest_of(text): text for text in made.values()}
        self.succeeded.add(request.key)
        self.finished_runs[request.key] += 1
        outputs = entries_of(made)
        self._lose_blobs(outputs)
        outcome = ExecutionOutcome(identifier=identifier, kind=OutcomeKind.SUCCEEDED, outputs=outputs)
        return [Executed(outcome=outcome)]
