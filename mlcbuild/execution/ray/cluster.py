"""A cluster as the build sees it: whether it is connected, its nodes, and calls to them."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mlcbuild.engine.executor import OutcomeKind
from mlcbuild.errors import InfrastructureError
from mlcbuild.execution.ray.bridge_client import BridgeClient
from mlcbuild.execution.ray.build_context import BuildContext
from mlcbuild.execution.ray.call_failures import NODE_DIED, NODE_SILENT, CallFailure, unreachable
from mlcbuild.execution.ray.calls import (
    Call,
    NodeError,
    NodeLostError,
    OnAnswer,
    OnFailure,
    PendingAnswer,
    PendingCalls,
)
from mlcbuild.execution.ray.demand import Node
from mlcbuild.execution.ray.environment_fingerprint import EnvironmentFingerprint
from mlcbuild.execution.ray.frames import pack, unpack
from mlcbuild.execution.ray.messages import description_from_json
from mlcbuild.execution.ray.node_pool import NodeDescription, NodePool
from mlcbuild.execution.ray.settings import RaySettings

_COMPARE_SECONDS = 1.0  # at least, for an answer that may be on its way
_OTHERS_SECONDS = 10.0  # for the other nodes, after the first one that matches this machine
_RETRY_SECONDS = 1.0
_SHOWN_NODES = 5
_NO_ANSWER = (OutcomeKind.LOST, OutcomeKind.CANCELLED)


class ClusterState(enum.Enum):
    NEW = "new"
    CONNECTING = "connecting"
    READY = "ready"
    FAILED = "failed"  # for good


class Cluster:
    """Connects in the background after `connect`. It calls `on_ready` when calls can be made; `on_lost`, with a reason,
    when the connection was lost and another attempt begins (pending calls have failed then); and `on_failed` when there
    is no cluster that may be used. Callbacks run in threads of the cluster and must not block.

    `environment` returns the fingerprint that every node must have. `numbers` gives calls their numbers.
    """

    def __init__(
        self,
        settings: RaySettings,
        *,
        context: BuildContext,
        environment: Callable[[], EnvironmentFingerprint],
        numbers: Iterator[int],
        say: Callable[[str], object],
        on_ready: Callable[[], None],
        on_lost: Callable[[str], None],
        on_failed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._plain_context = context
        self._read_environment = environment
        self._environment: EnvironmentFingerprint | None = None
        self.context: dict[str, Any] = {}  # what calls say about the build; set before the first call
        self._numbers = numbers
        self._on_ready = on_ready
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._changed = threading.Condition()
        self.nodes = NodePool(settings, changed=self._changed, say=say)
        self._state = ClusterState.NEW
        self._error: InfrastructureError | None = None
        self._bridge: BridgeClient | None = None
        self._reason = ""  # why the last attempt failed
        self._is_hopeless = False  # another attempt would fail too
        self._calls = PendingCalls()
        self._closed = False
        self._connecting: threading.Thread | None = None

    # The connection

    @property
    def state(self) -> ClusterState:
        return self._state

    @property
    def error(self) -> InfrastructureError:
        """Why it has failed."""
        return self._error or self._unreachable()

    def connect(self) -> None:
        """Start to connect, once. Returns at once."""
        with self._changed:
            if self._state is ClusterState.NEW:
                self._begin(self._settings.connect_seconds)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            bridge, self._bridge = self._bridge, None
            calls = self._calls.pop_all()
            self._changed.notify_all()
        for call in calls:
            call.on_failure(CallFailure(kind=OutcomeKind.CANCELLED, message=""))
        if bridge is not None:
            bridge.close()
        if self._connecting is not None:
            self._connecting.join()

    def _begin(self, seconds: float) -> None:
        """The lock is held."""
        self._state = ClusterState.CONNECTING
        deadline = time.monotonic() + seconds
        self._connecting = threading.Thread(target=self._connect, args=(deadline,), name="ray-connect", daemon=True)
        self._connecting.start()

    def _connect(self, deadline: float) -> None:
        try:
            while not self._try_to_connect(deadline):
                with self._changed:
                    if self._closed:
                        return
                    if self._is_hopeless or time.monotonic() >= deadline:
                        raise self._unreachable()
                    self._changed.wait(_RETRY_SECONDS)
        except Exception as error:
            with self._changed:
                self._state = ClusterState.FAILED
                if isinstance(error, InfrastructureError):
                    self._error = error
                else:
                    self._error = InfrastructureError(f"Ray cannot be used: {error!r}")
            self._on_failed()
            return
        self.nodes.report_different()  # Nodes that answer later are reported as they answer.
        self._on_ready()

    def _try_to_connect(self, deadline: float) -> bool:
        """One attempt. Raises InfrastructureError if only another setting or machine can help."""
        if self._environment is None:
            self._environment = self._read_environment()
            self.context = self._plain_context.to_json(self._environment)
        with self._changed:
            if self._closed:
                return False
            self._reason = ""
            self.nodes.update(None)
            bridge = self._bridge = BridgeClient(self._settings, on_frame=self._on_frame, on_end=self._on_end)
            # Nodes may come one after the other, and later than the head.
            self._changed.wait_for(
                lambda: self._has_nodes() or self._reason or self._bridge is not bridge or self._closed,
                max(0.0, deadline - time.monotonic()),
            )
            is_connected = self.nodes.is_known and self._bridge is bridge and not self._closed
        if not is_connected:
            self._give_up(bridge)
            return False
        error = self._compare_nodes(self._environment, deadline)
        with self._changed:
            if self._bridge is not bridge or self._closed:
                return False
            if error is None:
                self._state = ClusterState.READY
                return True
        self._give_up(bridge)
        raise error

    def _has_nodes(self) -> bool:
        return bool(self.nodes.usable() or (self.nodes.is_known and self._settings.may_scale_to))

    def _give_up(self, bridge: BridgeClient) -> None:
        with self._changed:
            if self._bridge is bridge:
                self._bridge = None
        bridge.close()

    def _unreachable(self) -> InfrastructureError:
        return unreachable(self._settings.address, self._reason)

    def _lost_message(self) -> str:
        return f"the connection to the Ray cluster at {self._settings.address or 'this machine'} was lost"

    # Which nodes may be used

    def exclude_different(self, identifier: str, theirs: EnvironmentFingerprint) -> None:
        """A node with another environment than this machine was found when it got an action."""
        assert self._environment is not None
        self.nodes.exclude_different(identifier, self._environment, theirs)

    def _compare_nodes(self, ours: EnvironmentFingerprint, deadline: float) -> InfrastructureError | None:
        """Ask every node for its environment. Returns an error if none matches this machine.

        Once a node matches, slow nodes are not waited for long: a node compares itself with the context of every
        call, and its own answer is taken in when it comes.
        """
        nodes = self.nodes
        asked = nodes.usable()
        for node in asked:
            self._ask_for_description(node, ours)
        seconds = max(_COMPARE_SECONDS, deadline - time.monotonic())
        with self._changed:
            self._changed.wait_for(lambda: nodes.any_matches(asked) or nodes.have_answered(asked), seconds)
            if nodes.any_matches(asked):
                self._changed.wait_for(lambda: nodes.have_answered(asked), min(seconds, _OTHERS_SECONDS))
        reasons = nodes.reasons_against(asked)
        if nodes.any_matches(asked) or not reasons:
            return None
        unusable = "no node of the Ray cluster can run this build's actions"
        if not any(nodes.differs(node.identifier) for node in asked):
            return InfrastructureError(unusable, advice=tuple(reasons[:_SHOWN_NODES]))
        return InfrastructureError(
            f"{unusable}, because they differ from this machine",
            advice=(*reasons[:_SHOWN_NODES], "install the same mlcbuild, with what it depends on, on every node"),
        )

    def _ask_for_description(self, node: Node, ours: EnvironmentFingerprint) -> None:
        def take_in(description: NodeDescription | None) -> None:
            self.nodes.compare(node, ours, description)
            if self._state is ClusterState.READY:
                self.nodes.report_different()

        def on_failure(failure: CallFailure) -> None:
            take_in(None if failure.kind in _NO_ANSWER else NodeDescription(error=failure.message))

        self._ask(
            node.identifier,
            {"call": "describe"},
            on_answer=lambda head, _: take_in(description_from_json(head)),
            on_failure=on_failure,
        )

    # Calls

    def call(
        self,
        number: int,
        options: Mapping[str, Any],
        payload: bytes,
        *,
        on_answer: OnAnswer,
        on_failure: OnFailure,
        on_move: Callable[[], None] | None = None,
    ) -> None:
        """`on_move` is called if the call has not begun when a node falls silent, which Ray may have chosen for it. The
        call is dropped then, and is to be made again with the options that are right now.
        """
        with self._changed:
            bridge = self._bridge
            if bridge is not None:
                node = options.get("node", "")
                self._calls.add(number, Call(on_answer=on_answer, on_failure=on_failure, node=node, on_move=on_move))
        if bridge is None:
            on_failure(CallFailure(kind=OutcomeKind.LOST, message=self._lost_message()))
        else:
            bridge.call(number, options, payload)

    def cancel(self, number: int, *, force: bool) -> None:
        bridge = self._bridge
        if bridge is not None:
            bridge.cancel(number, force=force)

    def ask(
        self, node: str, head: Mapping[str, Any], blobs: Sequence[bytes] = ()
    ) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        """Call a node and wait for its answer. Raises NodeLostError and NodeError."""
        answer = PendingAnswer()
        self._ask(node, head, blobs, on_answer=answer.on_answer, on_failure=answer.on_failure)
        answer.wait()
        if answer.failure is not None:
            raise NodeLostError(f"{self.nodes.name_of(node)}: {answer.failure.message}")
        if "error" in answer.head:
            raise NodeError(answer.head["error"], disk_is_full=answer.head["disk_is_full"])
        return answer.head, answer.blobs

    def _ask(
        self,
        node: str,
        head: Mapping[str, Any],
        blobs: Sequence[bytes] = (),
        *,
        on_answer: OnAnswer,
        on_failure: OnFailure,
    ) -> None:
        options = {"num_cpus": 0, "node": node}
        payload = pack({**head, "context": self.context}, blobs)
        self.call(next(self._numbers), options, payload, on_answer=on_answer, on_failure=on_failure)

    # What the bridge says, in its client's thread

    def _on_frame(self, head: Mapping[str, Any], payload: bytes) -> None:
        match head["is"]:
            case "answer":
                call = self._calls.pop(head["number"])
                if call is not None:
                    call.on_answer(*unpack(payload))
            case "failure":
                call = self._calls.pop(head["number"])
                if call is not None:
                    address = head.get("address", "")
                    call.on_failure(
                        CallFailure(
                            kind=OutcomeKind(head["kind"]),
                            message=head["message"],
                            peak_bytes=head["peak_bytes"],
                            node=call.node or self.nodes.at_address(address),
                            address=address,
                        )
                    )
            case "begun":
                self._on_begun(head["number"], head["node"])
            case "silent":
                self._on_silent(frozenset(head["nodes"]))
            case "ready":
                self.context = {**self.context, "announce": head["announce"]}
            case "nodes":
                self._on_nodes([Node.from_json(node) for node in head["nodes"]])
            case "not connected":
                with self._changed:
                    self._reason = head["message"]
                    self._is_hopeless = not head["may_retry"]
                    self._changed.notify_all()
            case _:
                pass

    def _on_nodes(self, nodes: Sequence[Node]) -> None:
        """Calls to a node that died fail at once: Ray may take long to notice that nobody answers them."""
        with self._changed:
            lost = self._calls.pop_those_for(self.nodes.update(nodes))
        for call in lost.values():
            call.on_failure(CallFailure(kind=OutcomeKind.LOST, message=NODE_DIED, node=call.node))

    def _on_begun(self, number: int, node: str) -> None:
        with self._changed:
            self._calls.begun(number, node)
            lost = self._calls.pop_those_for([node]) if self.nodes.is_lost(node) else {}
        self._fail_lost(lost)

    def _on_silent(self, silent: frozenset[str]) -> None:
        """Calls to nodes that do not answer fail, and those that have not begun are made again, elsewhere."""
        with self._changed:
            fallen_silent = self.nodes.update_silent(silent)
            lost = self._calls.pop_those_for(fallen_silent)
        self._fail_lost(lost)
        if fallen_silent:
            self.move_waiting()

    def move_waiting(self) -> None:
        """Make the calls again that no node has begun: Ray may have sent some to a node that must not get them."""
        with self._changed:
            moved = self._calls.pop_movable()
        for number, call in moved.items():
            self.cancel(number, force=True)
            assert call.on_move is not None
            call.on_move()

    def _fail_lost(self, lost: Mapping[int, Call]) -> None:
        for number, call in lost.items():
            self.cancel(number, force=True)
            call.on_failure(CallFailure(kind=OutcomeKind.LOST, message=NODE_SILENT, node=call.node))

    def _on_end(self, last_words: str) -> None:
        reason = self._lost_message()
        with self._changed:
            bridge, self._bridge = self._bridge, None
            self.nodes.update(None)
            self._reason = self._reason or last_words
            was_ready = self._state is ClusterState.READY and not self._closed
            calls = self._calls.pop_all()
            if was_ready:
                self._begin(self._settings.reconnect_seconds)
            self._changed.notify_all()
        for call in calls:
            call.on_failure(CallFailure(kind=OutcomeKind.LOST, message=reason))
        if was_ready:
            self._on_lost(reason)
            if bridge is not None:
                bridge.close()
