"""Only permitted moves happen, each of them is reached, and docs/scheduling.md shows them.

`MLCBUILD_UPDATE_SNAPSHOTS=1 pytest tests/engine/test_transitions.py` draws the page's tables and diagram anew.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.engine.graph import Graph
from mlcbuild.engine.nodes import ActionNode, Node, SourceNode, TargetNode
from mlcbuild.engine.scheduler_events import RequestedTarget
from mlcbuild.engine.transitions import (
    ACTION_TRANSITIONS,
    IN_FLIGHT,
    SOURCE_TRANSITIONS,
    TARGET_TRANSITIONS,
    UNFINISHED,
    NodeState,
    Transition,
)
from mlcbuild.errors import InternalError
from tests.engine import (
    scheduling_page,
    test_discovery,
    test_overtaking,
    test_recovery,
    test_scheduler,
    test_scheduler_random,
    test_simulation,
)
from tests.engine.steps import action

ENGINE = Path(__file__).parents[2] / "mlcbuild/engine"
SEEDS = 40
TABLES: dict[type[Node], tuple[Transition, ...]] = {
    SourceNode: SOURCE_TRANSITIONS,
    ActionNode: ACTION_TRANSITIONS,
    TargetNode: TARGET_TRANSITIONS,
}
Move = tuple[type[Node], NodeState, NodeState]
PERMITTED = {(kind, each.before, each.after) for kind, table in TABLES.items() for each in table}


def node_in(graph: Graph, kind: type[Node], state: NodeState) -> Node:
    """A node of `graph`, put into a state from outside."""
    if kind is SourceNode:
        node: Node = SourceNode(path="n")
    elif kind is TargetNode:
        node = graph.add_target(RequestedTarget(label="n", directory="n", outputs=()))
    else:
        graph.add_action(action("n"), discovered_by="")
        node = graph.actions["n"]
    node.state = state
    return node


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("before", NodeState)
def test_every_move_that_the_table_does_not_permit_is_refused(kind: type[Node], before: NodeState) -> None:
    for after in NodeState:
        graph = Graph()
        node = node_in(graph, kind, before)
        if (kind, before, after) in PERMITTED:
            graph.move(node, after)
            assert node.state is after
        else:
            with pytest.raises(InternalError, match=f"^n: a move from '{before.value}' to '{after.value}' is not"):
                graph.move(node, after)
            assert node.state is before
        # The counters change by what the two states mean, and not at all where the move was refused.
        assert graph.in_flight == (node.state in IN_FLIGHT) - (before in IN_FLIGHT)
        assert graph.unfinished == (node.state in UNFINISHED) - (before in UNFINISHED)
        assert graph.delivering == (node.state is NodeState.DELIVERING) - (before is NodeState.DELIVERING)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(NodeState)), max_size=60))
@settings(deadline=None)
def test_counters_equal_a_recount_after_any_sequence_of_moves(moves: list[tuple[int, NodeState]]) -> None:
    """Moves that the tables do not permit change nothing."""
    graph = Graph()
    graph.add_action(action("a"), discovered_by="")
    graph.add_action(action("b"), discovered_by="a")
    targets = [graph.add_target(RequestedTarget(label=name, directory=name, outputs=())) for name in "tu"]
    nodes: list[Node] = [*graph.actions.values(), *targets, graph.source("s"), graph.source("r")]
    for index, after in moves:
        permitted = after in nodes[index].moves[nodes[index].state]
        with contextlib.nullcontext() if permitted else pytest.raises(InternalError):
            graph.move(nodes[index], after)
        assert graph.in_flight == sum(node.state in IN_FLIGHT for node in nodes)
        assert graph.unfinished == sum(node.state in UNFINISHED for node in nodes)
        assert graph.delivering == sum(node.state is NodeState.DELIVERING for node in nodes)


def test_no_move_stands_twice_in_a_table() -> None:
    for table in TABLES.values():
        moves = Counter((each.before, each.after) for each in table)
        assert max(moves.values()) == 1


def test_one_function_changes_states() -> None:
    places = []
    for path in sorted(ENGINE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else ()
            for target in targets:
                if isinstance(target, ast.Attribute) and target.attr == "state" and ast.unparse(target) != "self.state":
                    places.append(f"{path.name} {ast.unparse(target)}")
    assert places == ["graph.py node.state"]


def test_tests_and_simulations_reach_every_permitted_move(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: Counter[Move] = Counter()
    move = Graph.move

    def recording(graph: Graph, node: Node, after: NodeState) -> None:
        before = node.state
        move(graph, node, after)
        reached[type(node), before, after] += 1

    monkeypatch.setattr(Graph, "move", recording)
    for module in (test_discovery, test_overtaking, test_recovery, test_scheduler):
        for name, test in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("test_"):
                test()
    for seed in range(SEEDS):
        size = random.Random(seed).randrange(1, 24)
        test_scheduler_random.a_build_with_faults_equals_recursion(seed, size)
        test_scheduler_random.a_stopped_build_leaves_nothing_half_done(seed, size, cancel=bool(seed % 2))
        test_simulation.failures_change_no_result(seed, size)
    unreached = [f"{kind.__name__} {before.value} → {after.value}" for kind, before, after in PERMITTED - set(reached)]
    assert not unreached, "\n".join(sorted(unreached))


def test_the_page_shows_the_permitted_moves() -> None:
    page = scheduling_page.PAGE.read_text(encoding="utf-8")
    if os.environ.get("MLCBUILD_UPDATE_SNAPSHOTS"):
        scheduling_page.PAGE.write_text(scheduling_page.with_drawn_part(page), encoding="utf-8")
        return
    assert scheduling_page.drawn_part(page) == scheduling_page.expected_part()
