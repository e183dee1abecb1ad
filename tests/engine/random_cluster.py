"""Random clusters, durations and failures for random builds in virtual time."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import Action, CachePolicy, ExecutionRequirements
from mlcbuild.engine.executor import ExecutionOutcome, FileEntry, OutcomeKind
from mlcbuild.engine.instructions import Execute, Instruction
from mlcbuild.engine.invariants import validate
from mlcbuild.engine.scheduler import Scheduler
from mlcbuild.engine.simulation import LookupResult, RunResult, Simulated, SimulatedExecutor, SimulatedRun
from mlcbuild.engine.transitions import NodeState
from tests.engine.random_graphs import Graph, digest_of, entries_of, key_of, outputs_of

MOST_MEMORY = 4  # bytes: two doublings of the one that an action begins with, which the scheduler allows


@dataclass(kw_only=True)
class RandomWork:
    """Draws the seconds, memory and lookup of an action from the seed and its name, and keeps what was made."""

    graph: Graph
    seed: int
    short_of_memory: bool = False  # some actions need more than they ask for
    slow_lookups: bool = False
    cached: Mapping[Digest, tuple[FileEntry, ...]] = field(default_factory=dict)  # what lookups find, mostly
    results: dict[Digest, tuple[FileEntry, ...]] = field(default_factory=dict)  # of what has run
    contents: dict[Digest, str] = field(default_factory=dict)

    def source(self, path: str) -> Digest:
        return digest_of(self.graph.sources[path])

    def key_of(self, action: Action, inputs: tuple[FileEntry, ...]) -> Digest:
        return key_of(action, inputs)

    def look_up(self, action: Action, key: Digest) -> LookupResult:
        chance = random.Random(f"{self.seed} lookup {action.identifier}")
        seconds = chance.choice([0.0, 0.1, 5.0]) if self.slow_lookups else 0.0
        return LookupResult(seconds=seconds, outputs=self.cached.get(key) if chance.random() < 0.7 else None)

    def seconds(self, action: Action) -> float:
        return random.Random(f"{self.seed} seconds {action.identifier}").expovariate(1.0)

    def memory_of(self, action: Action) -> int:
        return random.Random(f"{self.seed} memory {action.identifier}").choice([1, 1, 2, MOST_MEMORY])

    def run(self, execute: Execute) -> RunResult:
        action, seconds = execute.action, self.seconds(execute.action)
        if self.short_of_memory and max(execute.memory_bytes, 1) < self.memory_of(action):
            outcome = ExecutionOutcome(
                identifier=action.identifier,
                kind=OutcomeKind.OUT_OF_MEMORY,
                peak_bytes=max(execute.memory_bytes, 1),
            )
            return RunResult(seconds=seconds / 2, outcome=outcome)
        made = outputs_of(action, execute.inputs)
        if made is None:
            failed = ExecutionOutcome(identifier=action.identifier, kind=OutcomeKind.FAILED, message="it is fragile")
            return RunResult(seconds=seconds, outcome=failed)
        self.contents |= {digest_of(text): text for text in made.values()}
        self.results[execute.key] = entries_of(made)
        succeeded = ExecutionOutcome(identifier=action.identifier, kind=OutcomeKind.SUCCEEDED, outputs=entries_of(made))
        return RunResult(seconds=seconds, outcome=succeeded)

    def manifest(self, digest: Digest) -> bytes:
        return self.contents[digest].encode()


class CheckInvariants:
    """After each step: the scheduler's invariants hold, and what begins to run has all its inputs."""

    def __init__(self) -> None:
        self.stopped = False

    def __call__(self, scheduler: Scheduler, instructions: Sequence[Instruction]) -> None:
        validate(scheduler)
        for instruction in instructions:
            if isinstance(instruction, Execute):
                assert not self.stopped, "something started after the build was to stop"
                node = scheduler.graph.actions[instruction.action.identifier]
                producers = scheduler.graph.known_producers_of(node)
                assert all(producer.state is NodeState.DONE for producer in producers), "run without its inputs"
        self.stopped = scheduler.cancelled or bool(scheduler.stopped_by)


def needs_gpu(requirements: ExecutionRequirements) -> str:
    return "it has no GPU" if requirements.gpus else ""


def needs_label(requirements: ExecutionRequirements) -> str:
    return "it has no such label" if requirements.labels else ""


def with_requirements(graph: Graph, chance: random.Random) -> Graph:
    """Some actions want a GPU, some a label, some both."""
    gpus = [0.0, 0.0, 0.5, 1.0]
    labels: list[tuple[tuple[str, str], ...]] = [(), (), (("arch", "sm_90"),)]
    actions = (
        replace(
            action, requirements=replace(action.requirements, gpus=chance.choice(gpus), labels=chance.choice(labels))
        )
        for action in graph.actions
    )
    return replace(graph, actions=tuple(actions))


def one_cpu_each(graph: Graph) -> Graph:
    return replace(
        graph,
        actions=tuple(replace(a, requirements=replace(a.requirements, cpus=1)) for a in graph.actions),
    )


def random_executors(chance: random.Random) -> tuple[SimulatedExecutor, ...]:
    """Two to four executors, in random order; the last of the list takes everything."""
    executors = [
        SimulatedExecutor(name="everything", slots=chance.randrange(1, 4), trip_seconds=chance.choice([0.0, 0.05]))
    ]
    executors.append(SimulatedExecutor(name="local", slots=chance.randrange(1, 4), unmet=needs_gpu))
    if chance.random() < 0.7:
        executors.append(
            SimulatedExecutor(name="far", slots=chance.randrange(1, 9), trip_seconds=0.3, unmet=needs_label)
        )
    if chance.random() < 0.3:
        executors.append(
            SimulatedExecutor(
                name="no", slots=2, unmet=lambda requirements: needs_gpu(requirements) or needs_label(requirements)
            )
        )
    chance.shuffle(executors)
    return tuple(executors)


def check_that_runs_had_a_cause(simulated: Simulated) -> None:
    """Each attempt after the first follows one that was lost, stopped or short of memory; a key succeeds once."""
    attempts: dict[str, list[SimulatedRun]] = defaultdict(list)
    for run in simulated.runs:
        attempts[run.execute.action.identifier].append(run)
        assert run.kind is not None, "a run that never ended"
    for name, runs in attempts.items():
        causes = (OutcomeKind.LOST, OutcomeKind.OUT_OF_MEMORY, OutcomeKind.CANCELLED)
        assert all(run.kind in causes for run in runs[:-1]), f"{name} ran again without cause"
    successes = Counter(
        run.execute.key
        for run in simulated.runs
        if run.kind is OutcomeKind.SUCCEEDED and run.execute.action.cache is not CachePolicy.NONE
    )
    assert all(count == 1 for count in successes.values()), "one key was run twice"


def check_that_executors_could(simulated: Simulated, executors: Sequence[SimulatedExecutor]) -> None:
    """No action ran where it cannot, and no executor did more at once than it has slots."""
    for executor in executors:
        runs = [run for run in simulated.runs if run.executor == executor.name and run.start >= 0]
        assert not any(executor.unmet_requirement(run.execute.action) for run in runs)
        changes = [(run.start, min(run.execute.action.requirements.cpus, executor.slots)) for run in runs]
        changes += [(run.end, -min(run.execute.action.requirements.cpus, executor.slots)) for run in runs]
        used = 0
        for _, change in sorted(changes):
            used += change
            assert used <= executor.slots
