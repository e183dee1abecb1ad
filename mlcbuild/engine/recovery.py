"""What is done about runs that were lost or short of memory, and about blobs that have gone: again, a few times."""

from __future__ import annotations

from collections.abc import Iterable

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.course import Course
from mlcbuild.engine.endings import Endings
from mlcbuild.engine.executor import ExecutionOutcome
from mlcbuild.engine.nodes import ActionNode, Consumer, NodeState
from mlcbuild.engine.standing import Standing
from mlcbuild.engine.waiting import Waiting


class Recovery:
    """A part of the scheduler. Each limit counts for one action; one more, and it fails."""

    def __init__(
        self,
        standing: Standing,
        waiting: Waiting,
        endings: Endings,
        course: Course,
        *,
        rewind_limit: int,
        loss_limit: int,
        shortage_limit: int,
    ) -> None:
        self._standing = standing
        self._waiting = waiting
        self._endings = endings
        self._course = course
        self._rewind_limit = rewind_limit
        self._loss_limit = loss_limit
        self._shortage_limit = shortage_limit

    def run_again(self, node: ActionNode) -> None:
        """Have an action make its outputs again, whatever the cache says."""
        node.rewinds += 1
        if node.state is NodeState.DONE:
            self._standing.unsettled += 1
        if node.rewinds > self._rewind_limit:
            self._endings.fail(node, f"its outputs have gone from the cache {node.rewinds} times in this build")
            return
        node.rerun_key = node.key
        node.discovered_from = node.discovered_from if node.groups is not None else None
        self._waiting.again(node)

    def rewind(self, node: Consumer, missing: Iterable[Digest]) -> None:
        """Make the blobs that `node` lacks again, then go on with it."""
        gone = set(missing)
        node.rewinds += 1
        if node.rewinds > self._rewind_limit:
            self._endings.fail(node, f"its inputs have gone from the cache {node.rewinds} times in this build")
            return
        if isinstance(node, ActionNode):
            node.rerun_key = node.key
        self._waiting.again(node)
        for producer in self._standing.graph.known_producers_of(node):
            made = producer.outputs or ()
            if producer.state is NodeState.DONE and any(entry.digest in gone for entry in made):
                self.run_again(producer)

    def lost(self, node: ActionNode, message: str) -> None:
        node.losses += 1
        if node.losses > self._loss_limit:
            self._endings.fail(node, f"its executor was lost {node.losses} times: {message}")
        else:
            self._course.make_ready(node)

    def out_of_memory(self, node: ActionNode, outcome: ExecutionOutcome) -> None:
        """Again with twice as much."""
        node.shortages += 1
        if node.shortages > self._shortage_limit:
            self._endings.fail(node, outcome.message)
        else:
            had = max(node.memory_bytes, node.action.requirements.memory_bytes, outcome.peak_bytes)
            node.memory_bytes = 2 * had
            self._course.make_ready(node)
