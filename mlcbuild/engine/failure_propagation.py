"""How actions and targets end without a result. All that wait for one that ends so are skipped."""

from __future__ import annotations

from mlcbuild.engine.instructions import Ending, ReportAction, ReportTarget
from mlcbuild.engine.nodes import ActionNode, Consumer, TargetNode
from mlcbuild.engine.scheduler_state import SchedulerState
from mlcbuild.engine.shared_actions import owners_that_share, shared_with
from mlcbuild.engine.transitions import BROKEN, UNFINISHED, NodeState

STOPPED, INTERRUPTED = "the build stopped at the first failure", "the build was interrupted"
"""How the message begins of what had not started when the build ended early."""


class FailurePropagation:
    """A part of the scheduler."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def fail(self, node: Consumer, message: str) -> None:
        self._state.failed = True
        is_test = isinstance(node, ActionNode) and node.action.is_test
        if not self._state.keep_going and not is_test and not self._state.stopped_by:
            self._state.stopped_by = node.name
        self._end(node, NodeState.FAILED, message)

    def skip_after(self, node: Consumer, producer: ActionNode) -> None:
        """Skip a node because `producer`, which it needs, has failed or was skipped."""
        if producer.state is NodeState.FAILED:
            self._end(node, NodeState.SKIPPED, self._failed(producer), producer.name)
        else:
            self._end(node, NodeState.SKIPPED, producer.message, producer.blocked_by)

    def interrupt(self, node: Consumer) -> None:
        """Skip a node because the user cancelled the build."""
        self._end(node, NodeState.SKIPPED, INTERRUPTED)

    def give_up(self) -> None:
        """Skip all that is left, because nothing runs and nothing new starts."""
        graph = self._state.graph
        nodes: list[Consumer] = [*graph.actions.values(), *graph.targets.values()]
        message, cause = INTERRUPTED, "" if self._state.cancelled else self._state.stopped_by
        if cause:
            failed = graph.actions.get(cause) or graph.targets[cause]
            message = f"{STOPPED}, {failed.title} (--keep-going builds what does not need it)"
        for node in nodes:
            if node.state in UNFINISHED:
                self._end(node, NodeState.SKIPPED, message, cause)

    def _end(self, first: Consumer, final: NodeState, message: str, cause: str = "") -> None:
        """End `first` in the state `final`, and skip all that wait for it. `cause` names the action that failed.

        What joined a failed action has failed as well: it is the same run.
        """
        state = self._state
        if isinstance(first, ActionNode):
            first.shared_with = ""
        worklist: list[tuple[Consumer, NodeState, str, str]] = [(first, final, message, cause)]
        while worklist:
            node, final, message, cause = worklist.pop()
            if node.state in BROKEN:
                continue
            state.graph.move(node, final)
            if isinstance(node, TargetNode):
                state.instructions.append(
                    ReportTarget(label=node.name, success=False, message=message, blocked_by=cause)
                )
                continue
            node.message, node.blocked_by = message, cause
            failed = final is NodeState.FAILED
            followers, node.followers = node.followers, []
            node.shared_by = tuple(follower.name for follower in followers) if failed else ()
            state.instructions.append(
                ReportAction(
                    action=node.action,
                    key=node.key,
                    ending=Ending.FAILED if failed else Ending.SKIPPED,
                    message=message,
                    blocked_by=cause,
                    shared_with=node.shared_with if failed else "",
                    shared_by=node.shared_by,
                )
            )
            if node.key is not None and state.leaders.get(node.key) is node:
                del state.leaders[node.key]
            for follower in reversed(followers):
                follower.shared_with = node.name if failed else ""
                worklist.append((follower, final, message, cause))
            # What waits for a skipped action is skipped for the same reason, which need not be a failure.
            reason, root = (self._failed(node), node.name) if failed else (message, cause)
            waiters, node.waiters = node.waiters, []
            worklist += [(waiter, NodeState.SKIPPED, reason, root) for waiter in reversed(waiters)]

    def _failed(self, node: ActionNode) -> str:
        """That an action failed, and which other targets share it."""
        owners = owners_that_share(node, self._state.graph.actions)
        return f"{node.title} failed{shared_with(owners)}"
