"""Examines a cluster in the way that builds reach it, for the doctor. Nothing runs there but questions."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlcbuild.engine.executor import OutcomeKind
from mlcbuild.execution.ray.bridge_client import BridgeClient
from mlcbuild.execution.ray.build_context import BuildContext
from mlcbuild.execution.ray.call_failures import CallFailure, unreachable
from mlcbuild.execution.ray.calls import PendingAnswer
from mlcbuild.execution.ray.demand import Node
from mlcbuild.execution.ray.environment_fingerprint import EnvironmentFingerprint
from mlcbuild.execution.ray.frames import pack, unpack
from mlcbuild.execution.ray.messages import description_from_json
from mlcbuild.execution.ray.settings import RaySettings


@dataclass(frozen=True, kw_only=True)
class ProbedNode:
    """What a node answered. `unused` is why builds give it no actions, `error` why it did not answer. `differences` has
    one line for each thing that differs from this machine. `seconds` passed until the answer; they include the start
    of a process if Ray had to start one.
    """

    node: Node
    unused: str = ""
    error: str = ""
    differences: tuple[str, ...] = ()
    shares_store: bool = False
    seconds: float = 0.0


class ClusterProbe:
    """Has a connection of its own from `connect` on. `close` ends it, and a cluster that was started for it."""

    def __init__(self, settings: RaySettings, *, context: BuildContext, environment: EnvironmentFingerprint) -> None:
        self._settings = settings
        self._environment = environment
        self._context = context.to_json(environment)
        self._changed = threading.Condition()
        self._bridge: BridgeClient | None = None
        self._nodes: tuple[Node, ...] | None = None
        self._reason: str | None = None  # why there is no connection
        self._ended = False
        self._numbers = itertools.count(1)
        self._questions: dict[int, PendingAnswer] = {}

    def connect(self, seconds: float) -> float:
        """Connect, or start a cluster here. Returns how many seconds that took.

        Raises InfrastructureError if it takes longer than `seconds`.
        """
        began = time.monotonic()
        bridge = BridgeClient(self._settings, on_frame=self._on_frame, on_end=self._on_end)
        with self._changed:
            self._bridge = bridge
            self._changed.wait_for(lambda: self._nodes or self._reason is not None or self._ended, seconds)
            if not self._nodes or self._ended:
                raise unreachable(self._settings.address, self._reason or "")
        return time.monotonic() - began

    def look(self, seconds: float) -> tuple[ProbedNode, ...]:
        """Ask all nodes at once to describe themselves, and wait at most `seconds` for their answers."""
        deadline = time.monotonic() + seconds
        asked = [(node, self._ask(node)) for node in self._nodes or ()]
        return tuple(self._probed(node, answer, deadline) for node, answer in asked)

    def round_trip(self, node: Node, seconds: float) -> float:
        """How many seconds a task takes that does nothing there. Raises InfrastructureError if it does not end."""
        began = time.monotonic()
        answer = self._ask(node)
        if not answer.wait(seconds):
            raise unreachable(self._settings.address, f"a task on node {node.name} does not end")
        if answer.failure is not None:
            raise unreachable(self._settings.address, f"a task on node {node.name} failed: {answer.failure.message}")
        return time.monotonic() - began

    def close(self) -> None:
        if self._bridge is not None:
            self._bridge.close()

    def _probed(self, node: Node, answer: PendingAnswer, deadline: float) -> ProbedNode:
        error, shares = "", False
        differences: tuple[str, ...] = ()
        if not answer.wait(max(0.0, deadline - time.monotonic())):
            error = "it does not answer"
        elif answer.failure is not None:
            error = answer.failure.message
        else:
            description = description_from_json(answer.head)
            error, shares = description.error, description.shares_store
            if description.environment is not None:
                differences = self._environment.differences(description.environment)
        return ProbedNode(
            node=node,
            unused=self._unused(node),
            error=" ".join(error.split()),
            differences=differences,
            shares_store=shares,
            seconds=answer.seconds,
        )

    def _unused(self, node: Node) -> str:
        if node.resources.cpus < 1:
            return "it has no cpus"
        lacking = [f"{name}={value}" for name, value in self._settings.labels if not node.has([(name, value)])]
        return f"it lacks the label {', '.join(lacking)}" if lacking else ""

    def _ask(self, node: Node) -> PendingAnswer:
        answer = PendingAnswer()
        number = next(self._numbers)
        bridge = self._bridge
        with self._changed:
            if bridge is None or self._ended:
                answer.on_failure(_connection_lost())
                return answer
            self._questions[number] = answer
        options = {"num_cpus": 0, "node": node.identifier}
        bridge.call(number, options, pack({"call": "describe", "context": self._context}))
        return answer

    # What the bridge says, in its client's thread

    def _on_frame(self, head: Mapping[str, Any], payload: bytes) -> None:
        with self._changed:
            match head["is"]:
                case "nodes":
                    self._nodes = tuple(Node.from_json(told) for told in head["nodes"])
                case "not connected":
                    self._reason = head["message"]
                case "answer" if answer := self._questions.pop(head["number"], None):
                    answer.on_answer(*unpack(payload))
                case "failure" if answer := self._questions.pop(head["number"], None):
                    answer.on_failure(CallFailure(kind=OutcomeKind(head["kind"]), message=head["message"]))
                case _:
                    pass
            self._changed.notify_all()

    def _on_end(self, last_words: str) -> None:
        with self._changed:
            self._ended = True
            self._reason = self._reason or last_words
            questions, self._questions = self._questions, {}
            self._changed.notify_all()
        for answer in questions.values():
            answer.on_failure(_connection_lost())


def _connection_lost() -> CallFailure:
    return CallFailure(kind=OutcomeKind.LOST, message="the connection to the cluster was lost")
