"""Actions that are ready to run, the one with the longest path ahead first, and the slots that running ones take."""

from __future__ import annotations

import heapq

from mlcbuild.engine.nodes import ActionNode
from mlcbuild.engine.priorities import SecondsOf, rank
from mlcbuild.engine.transitions import NodeState


class ReadyQueue:
    """`jobs` slots, each action taking as many as it wants cpus; one that wants more than there are runs alone.

    There may come more slots; an action keeps as many as it took.
    """

    def __init__(self, *, jobs: int, seconds_of: SecondsOf) -> None:
        if jobs < 1:
            raise ValueError(f"a build needs at least one job: {jobs}")
        self.jobs = jobs
        self.running: dict[str, ActionNode] = {}
        self.used_slots = 0
        self._taken: dict[str, int] = {}
        self._seconds_of = seconds_of
        self._heap: list[tuple[float, int, ActionNode]] = []
        self._unranked: list[ActionNode] = []

    def grow(self, jobs: int) -> None:
        """Nothing happens where there are as many already."""
        self.jobs = max(self.jobs, jobs)

    def taken(self, identifier: str) -> int:
        """The slots of an action that runs."""
        return self._taken[identifier]

    def wanted(self, node: ActionNode) -> None:
        """A new action may get here one day: it is ranked with the others when the first of them does."""
        self._unranked.append(node)

    def push(self, node: ActionNode) -> None:
        if node.priority < 0:
            rank(self._unranked, self._seconds_of)
            self._unranked = []
        heapq.heappush(self._heap, (-node.priority, node.index, node))

    def next(self) -> ActionNode | None:
        """Take out the first node if there is room for it. None is overtaken by one that needs less."""
        while self._heap:
            node = self._heap[0][2]
            if node.state is NodeState.READY and self.running and self.used_slots + self._slots_of(node) > self.jobs:
                return None
            heapq.heappop(self._heap)
            if node.state is NodeState.READY:
                return node
        return None

    def start(self, node: ActionNode) -> None:
        self.running[node.name] = node
        self._taken[node.name] = self._slots_of(node)
        self.used_slots += self._taken[node.name]

    def stop(self, identifier: str) -> ActionNode | None:
        """The node if it was running, and is no more."""
        node = self.running.pop(identifier, None)
        if node is not None:
            self.used_slots -= self._taken.pop(identifier)
        return node

    def _slots_of(self, node: ActionNode) -> int:
        return max(1, min(node.action.requirements.cpus, self.jobs))
