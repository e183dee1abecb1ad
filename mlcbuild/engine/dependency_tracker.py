"""Who waits for whom: consumers stand in the lists of their producers until those are done."""

from __future__ import annotations

from collections import deque

from mlcbuild.engine.failure_propagation import FailurePropagation
from mlcbuild.engine.instructions import AnnounceWanted
from mlcbuild.engine.nodes import BROKEN, ActionNode, Consumer, NodeState, SourceNode
from mlcbuild.engine.scheduler_state import SchedulerState
from mlcbuild.errors import BuildError


class DependencyTracker:
    """A part of the scheduler. `movable` are nodes that may wait for less than they did, or for more."""

    def __init__(self, state: SchedulerState, failures: FailurePropagation) -> None:
        self.movable: deque[Consumer] = deque()
        self._state = state
        self._failures = failures
        self._wanted = 0  # actions, in all
        self._wanted_for: dict[str, int] = {}  # and not announced yet, by who discovered them

    def want(self, node: Consumer) -> None:
        node.state = NodeState.WAITING
        self._state.unsettled += 1
        self.movable.append(node)

    def announce(self) -> None:
        for cause, count in self._wanted_for.items():
            self._wanted += count
            self._state.instructions.append(AnnounceWanted(count=count, total=self._wanted, discovered_by=cause))
        self._wanted_for = {}

    def register(self, node: Consumer) -> bool:
        """Have `node` wait for those of its producers that are not done. True where all are.

        False too where it never will be ready, and has ended.
        """
        unready: dict[int, SourceNode | ActionNode] = {}
        try:
            for producer in self._state.graph.producers_of(node):
                if isinstance(producer, SourceNode):
                    if producer.error:
                        self._failures.fail(node, producer.error)
                        return False
                    if producer.digest is None:
                        unready[id(producer)] = producer
                    continue
                state = producer.state
                if state is NodeState.DONE:
                    continue
                if state in BROKEN:
                    self._failures.skip_after(node, producer)
                    return False
                if state is NodeState.UNWANTED:
                    self.want(producer)
                    self._state.queue.wanted(producer)
                    cause = producer.discovered_by
                    self._wanted_for[cause] = self._wanted_for.get(cause, 0) + 1
                unready[id(producer)] = producer
        except BuildError as error:
            self._failures.fail(node, str(error))
            return False
        waits = node.pending > 0
        for producer in unready.values():
            if not waits or node not in producer.waiters:
                producer.waiters.append(node)
                node.pending += 1
        return not unready

    def release(self, producer: SourceNode | ActionNode) -> None:
        """It is done, or never will be: those that wait for it look again when it was the last."""
        waiters, producer.waiters = producer.waiters, []
        discovers = isinstance(producer, ActionNode) and producer.action.discoverer is not None
        for waiter in waiters:
            waiter.pending -= 1
            if waiter.state is NodeState.WAITING and (waiter.pending == 0 or discovers):
                self.movable.append(waiter)

    def again(self, node: Consumer) -> None:
        """Back to the beginning: the producers again, then the key again."""
        node.state = NodeState.WAITING
        node.pending = 0
        self.movable.append(node)
        if isinstance(node, ActionNode):
            self._leave_key(node)

    def _leave_key(self, node: ActionNode) -> None:
        """Let others with this key go their own way: the node may depend on one of them."""
        leaders = self._state.leaders
        if node.key is not None and leaders.get(node.key) is node:
            del leaders[node.key]
        followers, node.followers = node.followers, []
        for follower in followers:
            follower.leader = None
            self.again(follower)
