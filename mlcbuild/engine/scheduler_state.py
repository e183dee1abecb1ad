"""Where a build stands: what the parts of the scheduler share, and change, in turn."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.graph import Graph
from mlcbuild.engine.instructions import Instruction
from mlcbuild.engine.nodes import ActionNode
from mlcbuild.engine.ready_queue import ReadyQueue


@dataclass(slots=True, eq=False, kw_only=True)
class SchedulerState:
    """`instructions` are those of the step that is being made, in order."""

    queue: ReadyQueue
    keep_going: bool
    graph: Graph = field(default_factory=Graph)
    leaders: dict[Digest, ActionNode] = field(default_factory=dict)  # of all with a key, who looks it up or runs
    instructions: list[Instruction] = field(default_factory=list)
    in_flight: int = 0  # look-ups, discoveries, deliveries, executions and digests not answered yet
    unsettled: int = 0  # wanted actions and targets that have not ended
    stopped_by: str = ""  # the failure after which nothing new starts
    failed: bool = False
    cancelled: bool = False

    @property
    def is_stopping(self) -> bool:
        """Whether nothing new starts."""
        return self.cancelled or bool(self.stopped_by)
