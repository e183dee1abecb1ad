"""The actions that are ready to run, by priority, and the slots that running actions take."""

from __future__ import annotations

import heapq

from mlcbuild.engine.nodes import ActionNode
from mlcbuild.engine.priorities import SecondsOf, rank
from mlcbuild.engine.transitions import NodeState


class ReadyQueue:
    """Has `jobs` slots. An action takes one for each of its cpus; an action with more cpus than slots runs alone.

    The number of slots may grow. A running action keeps the number that it took.
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
        """Have at least `jobs` slots from now on."""
        self.jobs = max(self.jobs, jobs)

    def taken(self, identifier: str) -> int:
        """The number of slots of a running action."""
        return self._taken[identifier]

    def wanted(self, node: ActionNode) -> None:
        """A new action may become ready later. It gets its priority when the first of the new ones is ready."""
        self._unranked.append(node)

    def push(self, node: ActionNode) -> None:
        if node.priority < 0:
            rank(self._unranked, self._seconds_of)
            self._unranked = []
        heapq.heappush(self._heap, (-node.priority, node.index, node))

    def next(self) -> ActionNode | None:
        """Take out the first node, if there is room for it. A node is never overtaken by one that needs fewer slots."""
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
        """Free the slots of an action. Returns its node; None where it was not running."""
        node = self.running.pop(identifier, None)
        if node is not None:
            self.used_slots -= self._taken.pop(identifier)
        return node

    def _slots_of(self, node: ActionNode) -> int:
        return max(1, min(node.action.requirements.cpus, self.jobs))
