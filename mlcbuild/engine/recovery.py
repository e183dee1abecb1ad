"""What happens after a lost executor, too little memory, or lost blobs: the action runs again, a few times."""

from __future__ import annotations

from collections.abc import Iterable

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action_lifecycle import ActionLifecycle
from mlcbuild.engine.dependency_tracker import DependencyTracker
from mlcbuild.engine.executor import ExecutionOutcome
from mlcbuild.engine.failure_propagation import FailurePropagation
from mlcbuild.engine.nodes import ActionNode, Consumer
from mlcbuild.engine.scheduler_state import SchedulerState
from mlcbuild.engine.transitions import NodeState


class Recovery:
    """A part of the scheduler. Each limit counts for each action. An action that exceeds one fails."""

    def __init__(
        self,
        state: SchedulerState,
        dependencies: DependencyTracker,
        failures: FailurePropagation,
        lifecycle: ActionLifecycle,
        *,
        rewind_limit: int,
        loss_limit: int,
        shortage_limit: int,
    ) -> None:
        self._state = state
        self._dependencies = dependencies
        self._failures = failures
        self._lifecycle = lifecycle
        self._rewind_limit = rewind_limit
        self._loss_limit = loss_limit
        self._shortage_limit = shortage_limit

    def run_again(self, node: ActionNode) -> None:
        """Have an action make its outputs again, whatever the action cache has."""
        node.rewinds += 1
        if node.rewinds > self._rewind_limit:
            self._failures.fail(node, f"its outputs disappeared from the cache {node.rewinds} times in this build")
            return
        node.rerun_key = node.key
        node.is_made_again = True
        node.discovered_from = node.discovered_from if node.groups is not None else None
        self._dependencies.wait_again(node)

    def rewind(self, node: Consumer, missing: Iterable[Digest]) -> None:
        """Make the blobs that `node` lacks again, then go on with it."""
        gone = set(missing)
        node.rewinds += 1
        if node.rewinds > self._rewind_limit:
            self._failures.fail(node, f"its inputs disappeared from the cache {node.rewinds} times in this build")
            return
        if isinstance(node, ActionNode):
            node.rerun_key = node.key
        self._dependencies.wait_again(node)
        for producer in self._state.graph.known_producers_of(node):
            made = producer.outputs or ()
            if producer.state is NodeState.DONE and any(entry.digest in gone for entry in made):
                self.run_again(producer)

    def lost(self, node: ActionNode, message: str) -> None:
        """Its run was lost with its executor, for the reason in `message`."""
        node.losses += 1
        if node.losses > self._loss_limit:
            self._failures.fail(node, f"its executor was lost {node.losses} times: {message}")
        else:
            self._lifecycle.make_ready(node)

    def out_of_memory(self, node: ActionNode, outcome: ExecutionOutcome) -> None:
        """Run it again with twice as much memory."""
        node.shortages += 1
        if node.shortages > self._shortage_limit:
            self._failures.fail(node, outcome.message)
        else:
            had = max(node.memory_bytes, node.action.requirements.memory_bytes, outcome.peak_bytes)
            node.memory_bytes = 2 * had
            self._lifecycle.make_ready(node)
