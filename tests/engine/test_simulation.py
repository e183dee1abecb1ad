"""Random builds on random clusters in virtual time: none stands still, repeats runs without cause, or takes long."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import Action, DerivedArtifact, DiscoveredArtifacts, Discovery, Input, ToolCall
from mlcbuild.engine.executor import FileEntry, OutcomeKind
from mlcbuild.engine.priorities import SecondsOf
from mlcbuild.engine.scheduler_events import Cancelled, RequestedTarget
from mlcbuild.engine.simulation import Loss, SimulatedExecutor, Simulation
from tests.engine.random_cluster import (
    CheckInvariants,
    RandomWork,
    check_that_executors_could,
    check_that_runs_had_a_cause,
    one_cpu_each,
    random_executors,
    with_requirements,
)
from tests.engine.random_graphs import Graph, Reference, digest_of, random_graph

_FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_MANY = settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_SEEDS = st.integers(0, 2**32 - 1)
_SIZES = st.integers(1, 24)
_ROUNDING = 1e-9


def random_graph_of_sources(chance: random.Random, size: int, *, fragile: bool, measured: bool) -> Graph:
    graph = random_graph(chance, size, fragile=fragile, measured=measured)
    return replace(graph, sources=graph.sources | {"absent": "here all the same"})


def time_is_within_its_bounds(seed: int, size: int) -> None:
    """Graham's bound of list scheduling: work / slots + path · (1 - 1 / slots), and never less than either."""
    chance = random.Random(seed)
    graph = one_cpu_each(random_graph_of_sources(chance, size, fragile=False, measured=chance.random() < 0.3))
    executors = [
        SimulatedExecutor(name=f"m{index}", slots=chance.randrange(1, 5)) for index in range(chance.randrange(1, 4))
    ]
    slots = sum(executor.slots for executor in executors)
    work = RandomWork(graph=graph, seed=seed)
    simulated = Simulation(
        actions=graph.actions,
        targets=graph.targets,
        work=work,
        executors=executors,
        seconds_of=work.seconds,
        observe=CheckInvariants(),
    ).run()
    assert simulated.success
    check_that_runs_had_a_cause(simulated)
    path = sum(step.seconds for step in simulated.path())
    share = simulated.work_seconds / slots
    assert simulated.seconds >= max(path, share) - _ROUNDING
    assert simulated.seconds <= share + path * (1 - 1 / slots) + _ROUNDING


def failures_change_no_result(seed: int, size: int) -> None:
    """Whatever executors lose, memory lacks and lookups take, all that can be made is made, with the same bytes."""
    chance = random.Random(seed)
    fragile = chance.random() < 0.5
    graph = random_graph_of_sources(chance, size, fragile=fragile, measured=chance.random() < 0.3)
    graph = with_requirements(graph, chance)
    executors = random_executors(chance)
    earlier = RandomWork(graph=graph, seed=seed)
    if chance.random() < 0.5:
        Simulation(
            actions=graph.actions, targets=graph.targets, work=earlier, executors=executors, keep_going=True
        ).run()
    work = RandomWork(
        graph=graph,
        seed=seed,
        short_of_memory=chance.random() < 0.5,
        slow_lookups=chance.random() < 0.5,
        cached=earlier.results,
        contents=earlier.contents,
    )
    losses = [
        (chance.uniform(0, 8), Loss(executor=chance.choice(executors).name, count=chance.randrange(1, 3)))
        for _ in range(chance.randrange(5))
    ]
    simulated = Simulation(
        actions=graph.actions,
        targets=graph.targets,
        work=work,
        executors=executors,
        jobs=chance.choice([0, 1, 3]),
        seconds_of=chance.choice([work.seconds, lambda _action: 1.0]),
        keep_going=True,
        lookup_timeout_seconds=0.5,
        incidents=losses,
        observe=CheckInvariants(),
    ).run()
    check_that_runs_had_a_cause(simulated)
    check_that_executors_could(simulated, executors)
    reference = Reference(graph)
    assert set(simulated.delivered) == {label for label, files in reference.targets.items() if files is not None}
    for label, delivered in simulated.delivered.items():
        assert delivered.files == reference.targets[label]
    assert simulated.success == (len(simulated.delivered) == len(graph.targets))


def an_interrupted_build_ends(seed: int, size: int) -> None:
    """Nothing starts after the interruption, what ran is stopped, and no target is said to be built wrongly."""
    chance = random.Random(seed)
    graph = with_requirements(
        random_graph_of_sources(chance, size, fragile=chance.random() < 0.5, measured=False), chance
    )
    executors = random_executors(chance)
    when = chance.uniform(0, 6)
    simulated = Simulation(
        actions=graph.actions,
        targets=graph.targets,
        work=RandomWork(graph=graph, seed=seed, slow_lookups=chance.random() < 0.5),
        executors=executors,
        keep_going=chance.random() < 0.5,
        lookup_timeout_seconds=0.5,
        incidents=[(when, Cancelled()), (chance.uniform(0, 8), Loss(executor=executors[0].name, count=2))],
        observe=CheckInvariants(),
    ).run()
    check_that_runs_had_a_cause(simulated)
    assert all(run.given <= when for run in simulated.runs)
    if simulated.scheduler.cancelled:
        assert all(run.end <= when for run in simulated.runs)
        assert not simulated.success
    reference = Reference(graph)
    for label, delivered in simulated.delivered.items():
        assert delivered.files == reference.targets[label]


_PROPERTIES = (time_is_within_its_bounds, failures_change_no_result, an_interrupted_build_ends)
each_property = pytest.mark.parametrize("holds", _PROPERTIES, ids=lambda holds: holds.__name__)


@each_property
@_FEW
@given(seed=_SEEDS, size=_SIZES)
def test_random_clusters(holds: Callable[[int, int], None], seed: int, size: int) -> None:
    holds(seed, size)


@pytest.mark.exhaustive
@each_property
@_MANY
@given(seed=_SEEDS, size=st.integers(1, 60))
def test_a_thousand_random_clusters(holds: Callable[[int, int], None], seed: int, size: int) -> None:
    holds(seed, size)


def actions_in_rows(seconds: dict[str, float], needs: dict[str, str]) -> Graph:
    """Actions by name, each with at most one that it needs."""
    made: dict[str, Action] = {}
    for name in seconds:
        inputs = (Input(path="in", artifact=made[needs[name]].output("out")),) if name in needs else ()
        made[name] = Action(
            identifier=name,
            mnemonic="Shell",
            owner="//rows:rows",
            inputs=inputs,
            outputs=("out",),
            command=ToolCall(arguments=(name,)),
            salt=name,
        )
    outputs = tuple((name, action.output("out")) for name, action in made.items())
    target = RequestedTarget(label="//rows:rows", directory="rows", outputs=outputs)
    return Graph(actions=tuple(made.values()), targets=(target,), sources={})


class RowWork(RandomWork):
    """Each action has a key of its own, and takes the given seconds."""

    given: dict[str, float]

    def key_of(self, action: Action, inputs: tuple[FileEntry, ...]) -> Digest:
        return digest_of(repr((action.identifier, inputs)))

    def seconds(self, action: Action) -> float:
        return self.given[action.identifier]


def row_seconds(graph: Graph, seconds: dict[str, float], seconds_of: SecondsOf, slots: int) -> float:
    work = RowWork(graph=graph, seed=0)
    work.given = seconds
    executors = [SimulatedExecutor(name="local", slots=slots)]
    return (
        Simulation(actions=graph.actions, targets=graph.targets, work=work, executors=executors, seconds_of=seconds_of)
        .run()
        .seconds
    )


def test_remembered_seconds_put_the_longest_path_first() -> None:
    """Two workers, four short actions and a long row. Only seconds show that the row has to begin first."""
    seconds = {"short 1": 1.0, "short 2": 1.0, "short 3": 1.0, "short 4": 1.0, "long": 3.0, "end": 1.0}
    graph = actions_in_rows(seconds, {"end": "long"})
    assert row_seconds(graph, seconds, lambda action: seconds[action.identifier], slots=2) == 4.0
    one_for_all = dict.fromkeys(seconds, 1.0) | {"end": 0.0}
    assert row_seconds(graph, seconds, lambda action: one_for_all[action.identifier], slots=2) == 6.0


def test_what_is_discovered_does_not_wait_for_what_else_its_consumer_needs() -> None:
    """A link needs objects that a partition announces, and something slow: both are made at the same time."""
    parts = DerivedArtifact(action="partition", path="manifest")
    partition = Action(
        identifier="partition",
        mnemonic="Discover",
        owner="//d:d",
        inputs=(),
        outputs=("manifest", "parts/"),
        command=ToolCall(arguments=("partition",)),
        manifest="manifest",
        discoverer=OneObject(),
    )
    slow = Action(
        identifier="slow",
        mnemonic="Slow",
        owner="//d:d",
        inputs=(Input(path="in", artifact=parts),),
        outputs=("out",),
        command=ToolCall(arguments=("slow",)),
    )
    link = Action(
        identifier="link",
        mnemonic="Link",
        owner="//d:d",
        inputs=(
            Input(path="slow", artifact=slow.output("out")),
            Input(path="objects/", artifact=DiscoveredArtifacts(action="partition", group="objects")),
        ),
        outputs=("out",),
        command=ToolCall(arguments=("link",)),
    )
    target = RequestedTarget(label="//d:d", directory="d", outputs=(("out", link.output("out")),))
    graph = Graph(actions=(partition, slow, link), targets=(target,), sources={})
    seconds = {"partition": 1.0, "slow": 5.0, "object": 5.0, "link": 1.0}
    assert row_seconds(graph, seconds, lambda _action: 1.0, slots=2) == 7.0


class OneObject:
    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        made = Action(
            identifier="object",
            mnemonic="Object",
            owner="//d:d",
            inputs=(Input(path="in", artifact=DerivedArtifact(action=discovering, path="manifest")),),
            outputs=("out",),
            command=ToolCall(arguments=("object",)),
        )
        return Discovery(actions=(made,), groups=(("objects", (made.output("out"),)),))


def test_a_run_on_a_lost_machine_is_made_again() -> None:
    seconds = {"first": 1.0, "second": 1.0}
    graph = actions_in_rows(seconds, {"second": "first"})
    work = RowWork(graph=graph, seed=0)
    work.given = seconds
    simulated = Simulation(
        actions=graph.actions,
        targets=graph.targets,
        work=work,
        executors=[SimulatedExecutor(name="local", slots=1)],
        incidents=[(0.5, Loss(executor="local", count=1))],
    ).run()
    assert simulated.success
    assert simulated.seconds == 2.5
    assert [(run.execute.action.identifier, run.kind, run.end) for run in simulated.runs] == [
        ("first", OutcomeKind.LOST, 0.5),
        ("first", OutcomeKind.SUCCEEDED, 1.5),
        ("second", OutcomeKind.SUCCEEDED, 2.5),
    ]
