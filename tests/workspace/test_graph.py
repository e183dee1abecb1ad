"""Graph functions against plain models, and on graphs deeper than the stack."""

from __future__ import annotations

import itertools
import sys

from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.workspace.graph import cycles, levels, reachable, reverse, shortest_path

graphs = st.integers(1, 9).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, size - 1), unique=True, max_size=4), min_size=size, max_size=size)
)


def closure(graph: list[list[int]], start: int) -> set[int]:
    """What can be reached in one step or more, by iteration to a fixed point."""
    found: set[int] = set(graph[start])
    while True:
        wider = found | {successor for node in found for successor in graph[node]}
        if wider == found:
            return found
        found = wider


@given(graphs, st.data())
def test_reachable_is_the_closure(graph: list[list[int]], data: st.DataObject) -> None:
    starts = data.draw(st.lists(st.integers(0, len(graph) - 1), max_size=3))
    found = reachable(starts, graph.__getitem__)
    assert len(found) == len(set(found))
    assert set(found) == set(starts).union(*(closure(graph, start) for start in starts))
    if not cycles(dict(enumerate(graph))):
        position = {node: index for index, node in enumerate(found)}
        assert all(position[successor] < position[node] for node in found for successor in graph[node])


@given(graphs)
def test_a_cycle_is_told_for_each_knot(graph: list[list[int]]) -> None:
    reaches = [closure(graph, node) for node in range(len(graph))]
    knots = {
        frozenset(other for other in reaches[node] if node in reaches[other])
        for node in range(len(graph))
        if node in reaches[node]
    }
    found = cycles(dict(enumerate(graph)))
    assert len(found) == len(knots)
    for cycle in found:
        assert len(set(cycle)) == len(cycle)
        assert all(after in graph[node] for node, after in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
        knot = next(knot for knot in knots if cycle[0] in knot)
        assert knot.issuperset(cycle)
        assert cycle[0] == min(knot)


@given(graphs, st.data())
def test_levels_and_paths_agree(graph: list[list[int]], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(graph) - 1))
    distances = levels([start], graph.__getitem__)
    for goal in range(len(graph)):
        path = shortest_path([start], [goal], graph.__getitem__)
        assert len(path) == (distances[goal] + 1 if goal in distances else 0)
        assert all(after in graph[node] for node, after in itertools.pairwise(path))
    limit = data.draw(st.integers(0, 4))
    limited = levels([start], graph.__getitem__, limit)
    assert limited == {node: distance for node, distance in distances.items() if distance <= limit}


@given(graphs)
def test_reverse_turns_every_edge(graph: list[list[int]]) -> None:
    turned = reverse(range(len(graph)), graph.__getitem__)
    assert {(node, after) for node, successors in enumerate(graph) for after in successors} == {
        (before, node) for node, predecessors in turned.items() for before in predecessors
    }


def test_depth_is_not_limited_by_the_stack() -> None:
    size = max(10_000, 10 * sys.getrecursionlimit())
    chain = {node: [node + 1] if node + 1 < size else [] for node in range(size)}
    assert reachable([0], chain.__getitem__) == tuple(reversed(range(size)))
    assert cycles(chain) == []
    ring = {**chain, size - 1: [0]}
    assert cycles(ring) == [tuple(range(size))]
