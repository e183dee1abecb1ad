"""The graph of targets: what is reachable, in which order, and where it runs in circles.

Nothing here recurses: a chain of targets may be deeper than Python's stack.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node")


def reachable(starts: Iterable[Node], successors: Callable[[Node], Iterable[Node]]) -> tuple[Node, ...]:
    """Everything that `starts` need, themselves included: each after all that it needs.

    Dependencies come in the order in which they are written. In a graph with a cycle every node still comes
    once.
    """
    done: dict[Node, None] = {}
    entered: set[Node] = set()
    for start in starts:
        if start in entered:
            continue
        entered.add(start)
        stack = [(start, iter(successors(start)))]
        while stack:
            node, remaining = stack[-1]
            for successor in remaining:
                if successor not in entered:
                    entered.add(successor)
                    stack.append((successor, iter(successors(successor))))
                    break
            else:
                stack.pop()
                done[node] = None
    return tuple(done)


def levels(
    starts: Iterable[Node], successors: Callable[[Node], Iterable[Node]], depth: int | None = None
) -> dict[Node, int]:
    """Each reachable node's distance from the nearest start, up to `depth` steps, nearest first."""
    distances = dict.fromkeys(starts, 0)
    pending = deque(distances)
    while pending:
        node = pending.popleft()
        distance = distances[node]
        if distance == depth:
            continue
        for successor in successors(node):
            if successor not in distances:
                distances[successor] = distance + 1
                pending.append(successor)
    return distances


def reverse(nodes: Iterable[Node], successors: Callable[[Node], Iterable[Node]]) -> dict[Node, list[Node]]:
    """Who needs each node, among `nodes`, in their order."""
    predecessors: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in tuple(predecessors):
        for successor in successors(node):
            if successor in predecessors:
                predecessors[successor].append(node)
    return predecessors


def shortest_path(
    starts: Iterable[Node], goals: Iterable[Node], successors: Callable[[Node], Iterable[Node]]
) -> tuple[Node, ...]:
    """A shortest path from a start to a goal, both included; empty where there is none."""
    targets = frozenset(goals)
    came_from: dict[Node, Node | None] = dict.fromkeys(starts)
    pending = deque(came_from)
    while pending:
        node = pending.popleft()
        if node in targets:
            path = [node]
            while (previous := came_from[path[-1]]) is not None:
                path.append(previous)
            return tuple(reversed(path))
        for successor in successors(node):
            if successor not in came_from:
                came_from[successor] = node
                pending.append(successor)
    return ()


def cycles(graph: Mapping[Node, Sequence[Node]]) -> list[tuple[Node, ...]]:
    """One shortest cycle for each knot of nodes that need each other, without repeating its first node at the end.

    A cycle starts at the knot's node that comes first in `graph`. Knots (strongly connected components) are
    found by Tarjan's algorithm, doi:10.1137/0201010; successors that `graph` lacks are leaves.
    """
    order = {node: index for index, node in enumerate(graph)}
    found = []
    for component in _components(graph):
        first = min(component, key=order.__getitem__)
        if len(component) == 1 and first not in graph[first]:
            continue
        members = frozenset(component)

        def inside(node: Node, members: frozenset[Node] = members) -> list[Node]:
            return [successor for successor in graph[node] if successor in members]

        back = frozenset(node for node in members if first in graph[node])
        found.append(shortest_path([first], back, inside))
    return sorted(found, key=lambda cycle: order[cycle[0]])


def _components(graph: Mapping[Node, Sequence[Node]]) -> list[list[Node]]:
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    open_nodes: dict[Node, None] = {}
    components = []
    for root in graph:
        if root in index:
            continue
        stack = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        open_nodes[root] = None
        while stack:
            node, remaining = stack[-1]
            for successor in remaining:
                if successor not in graph:
                    continue
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    open_nodes[successor] = None
                    stack.append((successor, iter(graph[successor])))
                    break
                if successor in open_nodes:
                    low[node] = min(low[node], index[successor])
            else:
                stack.pop()
                if stack:
                    parent = stack[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member, _ = open_nodes.popitem()
                        component.append(member)
                        if member == node:
                            break
                    components.append(component)
    return components
