"""Functions on the graph of targets: reachability, order, paths and cycles.

Nothing here is recursive, because a chain of targets may be longer than Python's stack allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node")


def reachable(starts: Iterable[Node], successors: Callable[[Node], Iterable[Node]]) -> tuple[Node, ...]:
    """Everything that `starts` need, and `starts` themselves. Each node comes after all that it needs.

    Dependencies keep the order in which they are written. Every node appears once, also in a graph with a cycle.
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
    """The distance of each reachable node from the nearest start, up to `depth` steps, nearest first."""
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
    """For each of `nodes`, which of them need it, in their order."""
    predecessors: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in tuple(predecessors):
        for successor in successors(node):
            if successor in predecessors:
                predecessors[successor].append(node)
    return predecessors


def shortest_path(
    starts: Iterable[Node], goals: Iterable[Node], successors: Callable[[Node], Iterable[Node]]
) -> tuple[Node, ...]:
    """A shortest path from a start to a goal, both included. Empty if there is none."""
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
    """One shortest cycle of each strongly connected component, without its first node repeated at the end.

    A cycle starts at the component's first node in `graph`. Components are found by Tarjan's algorithm
    (doi:10.1137/0201010). Successors that are not in `graph` have no successors.
    """
    # Numbers are hashed and compared much faster than nodes, whose methods are Python code.
    nodes = list(graph)
    numbers = {node: number for number, node in enumerate(nodes)}
    edges = [[numbers[after] for after in graph[node] if after in numbers] for node in nodes]
    found = []
    for component in _components(edges):
        first = min(component)
        if len(component) == 1 and first not in edges[first]:
            continue
        members = frozenset(component)

        def inside(number: int, members: frozenset[int] = members) -> list[int]:
            return [after for after in edges[number] if after in members]

        back = [number for number in members if first in edges[number]]
        found.append(shortest_path([first], back, inside))
    return [tuple(nodes[number] for number in cycle) for cycle in sorted(found)]


def _components(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    unseen = -1
    index = [unseen] * len(edges)
    low = [0] * len(edges)
    open_nodes: list[int] = []
    is_open = bytearray(len(edges))
    count = 0
    components = []
    for root in range(len(edges)):
        if index[root] != unseen:
            continue
        stack: list[tuple[int, Iterator[int]]] = []
        entering: int | None = root
        while entering is not None or stack:
            if entering is not None:
                index[entering] = low[entering] = count
                count += 1
                open_nodes.append(entering)
                is_open[entering] = True
                stack.append((entering, iter(edges[entering])))
                entering = None
            node, remaining = stack[-1]
            for after in remaining:
                if index[after] == unseen:
                    entering = after
                    break
                if is_open[after]:
                    low[node] = min(low[node], index[after])
            else:
                stack.pop()
                if stack:
                    parent = stack[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component: list[int] = []
                    while not component or component[-1] != node:
                        component.append(open_nodes.pop())
                        is_open[component[-1]] = False
                    components.append(component)
    return components
