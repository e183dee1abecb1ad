"""The state of a build, which the parts of the scheduler share and change."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.graph import Graph
from mlcbuild.engine.instructions import Instruction
from mlcbuild.engine.nodes import ActionNode
from mlcbuild.engine.ready_queue import ReadyQueue


@dataclass(slots=True, eq=False, kw_only=True)
class SchedulerState:
    """`instructions` are those of the current step, in order."""

    queue: ReadyQueue
    keep_going: bool
    graph: Graph = field(default_factory=Graph)
    leaders: dict[Digest, ActionNode] = field(default_factory=dict)  # of each key: the action that is looked up or runs
    instructions: list[Instruction] = field(default_factory=list)
    stopped_by: str = ""  # the failure after which nothing new starts
    failed: bool = False
    cancelled: bool = False

    @property
    def is_stopping(self) -> bool:
        """Whether nothing new starts."""
        return self.cancelled or bool(self.stopped_by)
