"""Random graphs, completion orders and failures: the scheduler against plain recursion."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mlcbuild.engine.instructions import Ending
from mlcbuild.engine.transitions import NodeState
from tests.engine.random_builds import Build, Faults, World
from tests.engine.random_graphs import Graph, Reference, random_graph

_FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_MANY = settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_SEEDS = st.integers(0, 2**32 - 1)
_SIZES = st.integers(1, 24)
_MADE = (Ending.FOUND, Ending.SHARED, Ending.EXECUTED)


def check_against_reference(build: Build, graph: Graph) -> None:
    """A build that kept going: the same files, the same failures, nothing more than was needed."""
    reference = Reference(graph)
    nodes = build.scheduler.graph.actions
    assert set(build.reports) == {name for name, node in nodes.items() if node.state is not NodeState.UNWANTED}
    for name, report in build.reports.items():
        if report.ending in _MADE:
            assert nodes[name].outputs == reference.outputs[name]
        elif report.ending is Ending.FAILED and report.shared_with:
            leader = build.reports[report.shared_with]
            assert leader.ending is Ending.FAILED
            assert (leader.key, leader.message) == (report.key, report.message)
            assert name in leader.shared_by
        elif report.ending is Ending.FAILED:
            unavailable = "is absent" in report.message
            assert name in reference.failed or unavailable
        else:
            assert report.blocked_by
            assert build.reports[report.blocked_by].ending is Ending.FAILED
            same_key = nodes[name].key is not None and nodes[name].key == nodes[report.blocked_by].key
            assert reference.outputs.get(name) is None
            assert name not in reference.failed or same_key
    assert {label for label, files in reference.targets.items() if files is not None} == set(build.delivered)
    for label, files in build.delivered.items():
        assert files == reference.targets[label]
    assert build.end is not None
    assert build.end.success == (len(build.delivered) == len(graph.targets))


def check_that_runs_had_a_cause(build: Build) -> None:
    for name, count in build.executed.items():
        node = build.scheduler.graph.actions[name]
        assert count <= 1 + node.losses + node.rewinds + node.shortages
    for key, count in build.finished_runs.items():
        nodes = [node for node in build.scheduler.graph.actions.values() if node.key == key]
        uncached = sum(node.action.cache.value == "none" for node in nodes)
        assert count <= 1 + sum(node.rewinds for node in nodes) + uncached


def a_build_without_faults_equals_recursion(seed: int, size: int) -> None:
    chance = random.Random(seed)
    graph = random_graph(chance, size, fragile=chance.random() < 0.5, measured=True)
    world = World(chance)
    first = world.build(graph)
    check_against_reference(first, graph)
    check_that_runs_had_a_cause(first)
    # A failure is not shared with actions of the same key that begin later.
    failed = {node.key for node in first.scheduler.graph.actions.values() if node.state is NodeState.FAILED}
    assert all(count == 1 or key in failed for key, count in first.looked_up.items())
    second = world.build(graph)
    check_against_reference(second, graph)
    # Which discovered actions are wanted by a target that fails in the end depends on what ends first.
    made = {name for name, report in first.reports.items() if report.ending in _MADE}
    assert all(
        second.scheduler.graph.actions[name].action.cache.value == "none" or name not in made
        for name in second.executed
    )


def a_build_with_faults_equals_recursion(seed: int, size: int) -> None:
    chance = random.Random(seed)
    graph = random_graph(chance, size, fragile=chance.random() < 0.5, measured=chance.random() < 0.5)
    world = World(chance)
    for _ in range(3):
        build = world.build(graph, jobs=chance.randrange(1, 5), faults=Faults(losses=3, missing=4, shortages=2, slow=4))
        check_against_reference(build, graph)
        check_that_runs_had_a_cause(build)


def an_edit_rebuilds_what_it_must(seed: int, size: int) -> None:
    chance = random.Random(seed)
    graph = random_graph(chance, size)
    world = World(chance)
    world.build(graph)
    known = set(world.results)
    edited = dataclasses.replace(graph, sources={**graph.sources, chance.choice(list(graph.sources)): "edited"})
    build = world.build(edited)
    check_against_reference(build, edited)
    assert not build.executed_keys & known


def a_stopped_build_leaves_nothing_half_done(seed: int, size: int, cancel: bool) -> None:
    chance = random.Random(seed)
    graph = random_graph(chance, size, fragile=True)
    faults = Faults(losses=2, missing=2, slow=2, cancel_at=chance.randrange(2 * size) if cancel else -1)
    build = World(chance).build(graph, keep_going=False, faults=faults)
    reference = Reference(graph)
    assert build.published <= build.succeeded
    for name, report in build.reports.items():
        if report.ending in _MADE:
            assert build.scheduler.graph.actions[name].outputs == reference.outputs[name]
    endings = [report.ending for report in build.reports.values()]
    assert build.end is not None
    assert build.end.success == (Ending.FAILED not in endings and not build.end.cancelled and not build.undelivered)
    assert len(build.undelivered) + len(build.delivered) >= len(graph.targets)
    again = World(chance, blobs=build.world.blobs, results=build.world.results).build(graph)
    check_against_reference(again, graph)


@given(seed=_SEEDS, size=_SIZES)
@_FEW
def test_a_build_without_faults_equals_recursion(seed: int, size: int) -> None:
    a_build_without_faults_equals_recursion(seed, size)


@given(seed=_SEEDS, size=_SIZES)
@example(seed=12191126, size=20)  # an action waits again after its lookup, and another of its key runs meanwhile
@_FEW
def test_lost_executors_and_lost_blobs_change_nothing_in_the_result(seed: int, size: int) -> None:
    a_build_with_faults_equals_recursion(seed, size)


@given(seed=_SEEDS, size=_SIZES)
@_FEW
def test_an_edit_runs_no_key_that_has_a_result(seed: int, size: int) -> None:
    an_edit_rebuilds_what_it_must(seed, size)


@given(seed=_SEEDS, size=_SIZES, cancel=st.booleans())
@_FEW
def test_a_stopped_build_leaves_nothing_half_done(seed: int, size: int, cancel: bool) -> None:
    a_stopped_build_leaves_nothing_half_done(seed, size, cancel)


@pytest.mark.exhaustive
@given(seed=_SEEDS, size=st.integers(1, 60), cancel=st.booleans())
@_MANY
def test_a_thousand_random_builds_with_every_fault(seed: int, size: int, cancel: bool) -> None:
    a_build_without_faults_equals_recursion(seed, size)
    a_build_with_faults_equals_recursion(seed, size)
    an_edit_rebuilds_what_it_must(seed, size)
    a_stopped_build_leaves_nothing_half_done(seed, size, cancel)
