"""Which consumers wait for which producers: a consumer stands in the list of each producer that is not done."""

from __future__ import annotations

from collections import deque

from mlcbuild.engine.failure_propagation import FailurePropagation
from mlcbuild.engine.instructions import AnnounceWanted
from mlcbuild.engine.nodes import ActionNode, Consumer, SourceNode
from mlcbuild.engine.scheduler_state import SchedulerState
from mlcbuild.engine.transitions import BROKEN, NodeState
from mlcbuild.errors import BuildError


class DependencyTracker:
    """A part of the scheduler. `movable` are waiting nodes whose producers may have changed since they registered."""

    def __init__(self, state: SchedulerState, failures: FailurePropagation) -> None:
        self.movable: deque[Consumer] = deque()
        self._state = state
        self._failures = failures
        self._wanted = 0  # actions, in all
        self._wanted_for: dict[str, list[str]] = {}  # not announced yet, by the action that discovered them

    def want(self, node: Consumer) -> None:
        """Something that was asked for needs `node`."""
        self._state.graph.move(node, NodeState.WAITING)
        self.movable.append(node)

    def announce(self) -> None:
        """Say how many actions are wanted that were not before."""
        for cause, names in self._wanted_for.items():
            self._wanted += len(names)
            self._state.instructions.append(
                AnnounceWanted(identifiers=tuple(names), total=self._wanted, discovered_by=cause)
            )
        self._wanted_for = {}

    def register(self, node: Consumer) -> bool:
        """Make `node` wait for each of its producers that is not done. Answers whether all are done.

        Answers False as well where a producer has failed or does not exist; `node` has then ended.
        """
        unready: dict[int, SourceNode | ActionNode] = {}
        try:
            for producer in self._state.graph.producers_of(node):
                state = producer.state
                if state is NodeState.DONE:
                    continue
                if isinstance(producer, SourceNode):
                    if producer.error:
                        self._failures.fail(node, producer.error)
                        return False
                    unready[id(producer)] = producer
                    continue
                if state in BROKEN:
                    self._failures.skip_after(node, producer)
                    return False
                if state is NodeState.UNWANTED:
                    self.want(producer)
                    self._state.queue.wanted(producer)
                    self._wanted_for.setdefault(producer.discovered_by, []).append(producer.name)
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
        """`producer` has ended. Consumers that waited for it alone can move."""
        waiters, producer.waiters = producer.waiters, []
        discovers = isinstance(producer, ActionNode) and producer.action.discoverer is not None
        for waiter in waiters:
            waiter.pending -= 1
            if waiter.state is NodeState.WAITING and (waiter.pending == 0 or discovers):
                self.movable.append(waiter)

    def wait_again(self, node: Consumer) -> None:
        """Start over: wait for the producers, then compute the key again."""
        self._state.graph.move(node, NodeState.WAITING)
        node.pending = 0
        self.movable.append(node)
        if isinstance(node, ActionNode):
            self._release_followers(node)

    def _release_followers(self, node: ActionNode) -> None:
        """Let the actions that joined `node` start over too: `node` may depend on one of them."""
        leaders = self._state.leaders
        if node.key is not None and leaders.get(node.key) is node:
            del leaders[node.key]
        followers, node.followers = node.followers, []
        for follower in followers:
            follower.leader = None
            self.wait_again(follower)
