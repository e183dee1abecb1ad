"""Looks at a cluster in the way that builds reach it, and runs nothing there but questions."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlcbuild.engine.executor import OutcomeKind
from mlcbuild.execution.ray.bridge_client import BridgeClient
from mlcbuild.execution.ray.cluster import Answered, Surroundings, unreachable
from mlcbuild.execution.ray.demand import Node
from mlcbuild.execution.ray.faults import Fault
from mlcbuild.execution.ray.frames import pack, unpack
from mlcbuild.execution.ray.likeness import differences
from mlcbuild.execution.ray.settings import RaySettings


@dataclass(frozen=True, kw_only=True)
class NodeSeen:
    """A node that was asked what it is. `unused` says why builds give it nothing, `trouble` what kept it from
    answering; `differences` has a line for each thing that is not the same there. `seconds` went by until it answered,
    in which Ray may have had to start a process there.
    """

    node: Node
    unused: str = ""
    trouble: str = ""
    differences: tuple[str, ...] = ()
    shares_store: bool = False
    seconds: float = 0.0


class ClusterProbe:
    """A connection of its own, from the first call on; `close` ends it, with a cluster that was started for it."""

    def __init__(self, settings: RaySettings, *, surroundings: Surroundings, likeness: Mapping[str, str]) -> None:
        self._settings = settings
        self._likeness = likeness
        self._surroundings = surroundings.to_json(likeness)
        self._changed = threading.Condition()
        self._bridge: BridgeClient | None = None
        self._nodes: tuple[Node, ...] | None = None
        self._refused: str | None = None
        self._ended = False
        self._numbers = itertools.count(1)
        self._questions: dict[int, Answered] = {}

    def connect(self, seconds: float) -> float:
        """Connect, or start a cluster here; answers how long that took.

        Raises InfrastructureError where it does not come about in so many seconds.
        """
        began = time.monotonic()
        bridge = BridgeClient(self._settings, on_frame=self._on_frame, on_end=self._on_end)
        with self._changed:
            self._bridge = bridge
            self._changed.wait_for(lambda: self._nodes or self._refused is not None or self._ended, seconds)
            if not self._nodes or self._ended:
                raise unreachable(self._settings.address, self._refused or "")
        return time.monotonic() - began

    def look(self, seconds: float) -> tuple[NodeSeen, ...]:
        """Ask all nodes at once what they are. Who has not answered after so many seconds has trouble."""
        deadline = time.monotonic() + seconds
        asked = [(node, self._ask(node)) for node in self._nodes or ()]
        return tuple(self._seen(node, answered, deadline) for node, answered in asked)

    def round_trip(self, node: Node, seconds: float) -> float:
        """How long a task takes that does nothing there. Raises InfrastructureError where it does not end."""
        began = time.monotonic()
        answered = self._ask(node)
        if not answered.wait(seconds):
            raise unreachable(self._settings.address, f"a task on node {node.name} does not end")
        if answered.fault is not None:
            raise unreachable(self._settings.address, f"a task on node {node.name} failed: {answered.fault.message}")
        return time.monotonic() - began

    def close(self) -> None:
        if self._bridge is not None:
            self._bridge.close()

    def _seen(self, node: Node, answered: Answered, deadline: float) -> NodeSeen:
        began = time.monotonic()
        has_come = answered.wait(max(0.0, deadline - began))
        trouble, shares = "", False
        unlike: tuple[str, ...] = ()
        if not has_come:
            trouble = "it does not answer"
        elif answered.fault is not None:
            trouble = answered.fault.message
        elif "trouble" in answered.head:
            trouble = answered.head["trouble"]
        else:
            unlike = differences(self._likeness, answered.head["likeness"])
            shares = answered.head["is_shared"]
        return NodeSeen(
            node=node,
            unused=self._unused(node),
            trouble=" ".join(trouble.split()),
            differences=unlike,
            shares_store=shares,
            seconds=answered.seconds,
        )

    def _unused(self, node: Node) -> str:
        if node.resources.cpus < 1:
            return "it has no cpus"
        lacking = [f"{name}={value}" for name, value in self._settings.labels if not node.has([(name, value)])]
        return f"it lacks the label {', '.join(lacking)}" if lacking else ""

    def _ask(self, node: Node) -> Answered:
        answered = Answered()
        number = next(self._numbers)
        bridge = self._bridge
        with self._changed:
            if bridge is None or self._ended:
                answered.on_fault(Fault(kind=OutcomeKind.LOST, message="the cluster went away"))
                return answered
            self._questions[number] = answered
        options = {"num_cpus": 0, "node": node.identifier}
        bridge.call(number, options, pack({"call": "compare", "surroundings": self._surroundings}))
        return answered

    # What the bridge says, in its client's thread

    def _on_frame(self, head: Mapping[str, Any], payload: bytes) -> None:
        with self._changed:
            match head["is"]:
                case "nodes":
                    self._nodes = tuple(Node.from_json(told) for told in head["nodes"])
                case "refused":
                    self._refused = head["message"]
                case "answer" if answered := self._questions.pop(head["number"], None):
                    answered.on_answer(*unpack(payload))
                case "fault" if answered := self._questions.pop(head["number"], None):
                    answered.on_fault(Fault(kind=OutcomeKind(head["kind"]), message=head["message"]))
                case _:
                    pass
            self._changed.notify_all()

    def _on_end(self, last_words: str) -> None:
        with self._changed:
            self._ended = True
            self._refused = self._refused or last_words
            questions, self._questions = self._questions, {}
            self._changed.notify_all()
        for answered in questions.values():
            answered.on_fault(Fault(kind=OutcomeKind.LOST, message="the cluster went away"))
