"""How actions and targets end that have no result: each with its reason, and with it all that wait for it."""

from __future__ import annotations

from mlcbuild.engine.instructions import Ending, ReportAction, ReportTarget
from mlcbuild.engine.nodes import ENDED, ActionNode, Consumer, NodeState, TargetNode
from mlcbuild.engine.scheduler_state import SchedulerState


class FailurePropagation:
    """A part of the scheduler."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def fail(self, node: Consumer, message: str) -> None:
        self._state.failed = True
        if not self._state.keep_going and not self._state.stopped_by:
            self._state.stopped_by = node.name
        self._end(node, NodeState.FAILED, message)

    def skip_after(self, node: Consumer, producer: ActionNode) -> None:
        """`producer`, which the node needs, has ended without a result."""
        if producer.state is NodeState.FAILED:
            self._end(node, NodeState.SKIPPED, f"{producer.name} failed", producer.name)
        else:
            self._end(node, NodeState.SKIPPED, producer.message, producer.blocked_by)

    def interrupt(self, node: Consumer) -> None:
        self._end(node, NodeState.SKIPPED, "the build was interrupted")

    def give_up(self) -> None:
        """Nothing runs and nothing new starts: end all that is left."""
        cause = "" if self._state.cancelled else self._state.stopped_by
        stopped = f"the build stopped at the first failure, {cause} (--keep-going builds what does not need it)"
        message = stopped if cause else "the build was interrupted"
        graph = self._state.graph
        nodes: list[Consumer] = [*graph.actions.values(), *graph.targets.values()]
        for node in nodes:
            if node.state is not NodeState.UNWANTED and node.state not in ENDED:
                self._end(node, NodeState.SKIPPED, message, cause)

    def _end(self, first: Consumer, final: NodeState, message: str, cause: str = "") -> None:
        state = self._state
        worklist: list[tuple[Consumer, NodeState, str, str]] = [(first, final, message, cause)]
        while worklist:
            node, final, message, cause = worklist.pop()
            if node.state in ENDED and node.state is not NodeState.DONE:
                continue
            node.state = final
            state.unsettled -= 1
            if isinstance(node, TargetNode):
                state.instructions.append(
                    ReportTarget(label=node.name, success=False, message=message, blocked_by=cause)
                )
                continue
            node.message, node.blocked_by = message, cause
            ending = Ending.FAILED if final is NodeState.FAILED else Ending.SKIPPED
            state.instructions.append(
                ReportAction(action=node.action, key=node.key, ending=ending, message=message, blocked_by=cause)
            )
            root = node.name if final is NodeState.FAILED else cause
            # Who waits for what was skipped is left out for the same reason, which need not be a failure below it.
            after = f"{node.name} failed" if final is NodeState.FAILED else message
            if node.key is not None and state.leaders.get(node.key) is node:
                del state.leaders[node.key]
            blocked: list[Consumer] = [*node.waiters, *node.followers]
            node.waiters, node.followers = [], []
            for other in reversed(blocked):
                worklist.append((other, NodeState.SKIPPED, after, root))
