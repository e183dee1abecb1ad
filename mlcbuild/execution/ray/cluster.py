"""A cluster as the build sees it: connected or not, its nodes, which of them may be used, and calls to them."""

from __future__ import annotations

import enum
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.remote.configuration import RemoteConfiguration
from mlcbuild.engine.executor import OutcomeKind
from mlcbuild.errors import InfrastructureError
from mlcbuild.execution.ray.bridge_client import BridgeClient
from mlcbuild.execution.ray.demand import Node
from mlcbuild.execution.ray.faults import NODE_WENT_AWAY, Fault
from mlcbuild.execution.ray.frames import pack, unpack
from mlcbuild.execution.ray.likeness import digest_of
from mlcbuild.execution.ray.node_store import identity_of
from mlcbuild.execution.ray.remote_on_node import remote_to_json
from mlcbuild.execution.ray.roster import Roster
from mlcbuild.execution.ray.settings import RaySettings

OnAnswer = Callable[[Mapping[str, Any], Sequence[bytes]], None]
OnFault = Callable[[Fault], None]

_COMPARE_SECONDS = 1.0  # at least, for an answer that may be on its way
_OTHERS_SECONDS = 10.0  # that the other nodes have after the first one that is like this machine
_RETRY_SECONDS = 1.0
_SHOWN_NODES = 5
_NO_ANSWER = (OutcomeKind.LOST, OutcomeKind.CANCELLED)
_OF_TOKENS = re.compile("authentication|InvalidAuthToken", re.IGNORECASE)  # in the words of Ray
_ON_TOKENS = (
    "no token yet? make one on the head, `ray get-auth-token --generate`, and copy ~/.ray/auth_token to every machine"
)


class NodeLostError(Exception):
    """A node went away, or what it had; the action may run again elsewhere."""


class NodeTroubleError(Exception):
    """A node cannot do its part."""

    def __init__(self, message: str, *, is_full: bool) -> None:
        super().__init__(message)
        self.is_full = is_full  # its disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every call to a node says of the build."""

    root: Path  # of its store
    function: DigestFunction
    remote: RemoteConfiguration | None
    toolchains: tuple[str, ...]
    sandbox: bool
    idle_seconds: float

    def to_json(self, likeness: Mapping[str, str]) -> dict[str, Any]:
        return {
            "store": str(self.root.absolute()),
            "identity": identity_of(self.root) if self.root.is_dir() else "",
            "function": self.function.value,
            "toolchains": self.toolchains,
            "likeness": digest_of(likeness),
            "remote": remote_to_json(self.remote),
            "sandbox": self.sandbox,
            "idle_seconds": self.idle_seconds,
        }


class Answered:
    """Waits for the answer to one call."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._began = time.monotonic()
        self.seconds = 0.0  # that it took
        self.head: Mapping[str, Any] = {}
        self.blobs: Sequence[bytes] = ()
        self.fault: Fault | None = None

    def on_answer(self, head: Mapping[str, Any], blobs: Sequence[bytes]) -> None:
        self.head, self.blobs = head, blobs
        self.seconds = time.monotonic() - self._began
        self._event.set()

    def on_fault(self, fault: Fault) -> None:
        self.fault = fault
        self._event.set()

    def wait(self, seconds: float | None = None) -> bool:
        return self._event.wait(seconds)


def unreachable(address: str, reason: str) -> InfrastructureError:
    """That there is no cluster at an address, or, for "", none on this machine."""
    where = f"the Ray cluster at {address}" if address else "a Ray cluster here"
    advice = (
        "check the address, that this machine is a node of the cluster, and that both have the same token"
        if address
        else "see what Ray printed, or build with --executor=local"
    )
    doing = "cannot be reached" if address else "cannot be started"
    more = (_ON_TOKENS,) if _OF_TOKENS.search(reason) else ()
    return InfrastructureError(f"{where} {doing}: {reason or 'it does not answer'}", advice=(advice, *more))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One under way. `place` is the node that it is for alone, "" where others may take it."""

    on_answer: OnAnswer
    on_fault: OnFault
    place: str


class State(enum.Enum):
    NEW = "new"
    CONNECTING = "connecting"
    READY = "ready"
    FAILED = "failed"  # for good


class Cluster:
    """Connects in the background once it is told to. `on_ready` is told when calls can be made; `on_lost`, with a
    reason, when it went away and is being connected to again (calls under way are answered with faults then);
    `on_failed` when there is none that may be used. Callbacks are called in threads of its own, which they must not
    keep waiting.
    """

    def __init__(
        self,
        settings: RaySettings,
        *,
        surroundings: Surroundings,
        likeness: Callable[[], Mapping[str, str]],
        numbers: Iterator[int],
        say: Callable[[str], object],
        on_ready: Callable[[], None],
        on_lost: Callable[[str], None],
        on_failed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._plain_surroundings = surroundings
        self._likeness_of = likeness
        self._likeness: Mapping[str, str] = {}
        self._surroundings: dict[str, Any] = {}
        self._numbers = numbers
        self._on_ready = on_ready
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._changed = threading.Condition()
        self.roster = Roster(settings, changed=self._changed, say=say)
        self._state = State.NEW
        self._error: InfrastructureError | None = None
        self._bridge: BridgeClient | None = None
        self._refused = ""  # why the last attempt failed
        self._is_hopeless = False  # another attempt would fail too
        self._calls: dict[int, _Call] = {}
        self._closed = False
        self._connecting: threading.Thread | None = None

    # Connecting

    @property
    def state(self) -> State:
        return self._state

    @property
    def error(self) -> InfrastructureError:
        """Why it has failed."""
        return self._error or self._unreachable()

    def connect(self) -> None:
        """Begin to, once; returns at once."""
        with self._changed:
            if self._state is State.NEW:
                self._begin(self._settings.connect_seconds)

    def _begin(self, seconds: float) -> None:
        """Called with the lock held."""
        self._state = State.CONNECTING
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
                self._state = State.FAILED
                if isinstance(error, InfrastructureError):
                    self._error = error
                else:
                    self._error = InfrastructureError(f"Ray cannot be used: {error!r}")
            self._on_failed()
            return
        self.roster.tell_of_unlike()  # From here on each is told as it answers.
        self._on_ready()

    def _try_to_connect(self, deadline: float) -> bool:
        """One attempt. Raises InfrastructureError where nothing but another setting or machine helps."""
        if not self._likeness:
            self._likeness = self._likeness_of()
            self._surroundings = self._plain_surroundings.to_json(self._likeness)
        with self._changed:
            if self._closed:
                return False
            self._refused = ""
            self.roster.set(None)
            bridge = self._bridge = BridgeClient(self._settings, on_frame=self._on_frame, on_end=self._on_end)
            # Nodes may come one after the other, and behind the head.
            self._changed.wait_for(
                lambda: self._has_nodes() or self._refused or self._bridge is not bridge or self._closed,
                max(0.0, deadline - time.monotonic()),
            )
            has_come = self.roster.is_known and self._bridge is bridge and not self._closed
        if not has_come:
            self._give_up(bridge)
            return False
        unlike = self._compare(deadline)
        with self._changed:
            if self._bridge is not bridge or self._closed:
                return False
            if unlike is None:
                self._state = State.READY
                return True
        self._give_up(bridge)
        raise unlike

    def _has_nodes(self) -> bool:
        return bool(self.roster.usable() or (self.roster.is_known and self._settings.may_scale_to))

    def _give_up(self, bridge: BridgeClient) -> None:
        with self._changed:
            if self._bridge is bridge:
                self._bridge = None
        bridge.close()

    def surroundings(self) -> dict[str, Any]:
        return self._surroundings

    def _unreachable(self) -> InfrastructureError:
        return unreachable(self._settings.address, self._refused)

    def _lost_message(self) -> str:
        return f"the Ray cluster at {self._settings.address or 'this machine'} went away"

    def close(self) -> None:
        with self._changed:
            self._closed = True
            bridge, self._bridge = self._bridge, None
            calls, self._calls = self._calls, {}
            self._changed.notify_all()
        for call in calls.values():
            call.on_fault(Fault(kind=OutcomeKind.CANCELLED, message=""))
        if bridge is not None:
            bridge.close()
        if self._connecting is not None:
            self._connecting.join()

    # Who may be used

    def differs(self, identifier: str, theirs: Mapping[str, str]) -> None:
        """A node turned out to be unlike this machine."""
        self.roster.differs(identifier, self._likeness, theirs)

    def _compare(self, deadline: float) -> InfrastructureError | None:
        """Ask every node what it is. An error where none is like this machine.

        A node that is slow to answer keeps nobody waiting long once another has: it compares itself with what every
        call says, and its own answer counts when it comes.
        """
        roster = self.roster
        asked = roster.usable()
        for node in asked:
            self._ask_for_likeness(node)
        patience = max(_COMPARE_SECONDS, deadline - time.monotonic())
        with self._changed:
            self._changed.wait_for(lambda: roster.is_like_any(asked) or roster.have_answered(asked), patience)
            if roster.is_like_any(asked):
                self._changed.wait_for(lambda: roster.have_answered(asked), min(patience, _OTHERS_SECONDS))
        problems = roster.problems(asked)
        if roster.is_like_any(asked) or not problems:
            return None
        return InfrastructureError(
            "no node of the Ray cluster can run this build's actions, because they differ from this machine",
            advice=(*problems[:_SHOWN_NODES], "install the same mlcbuild, with what it depends on, on every node"),
        )

    def _ask_for_likeness(self, node: Node) -> None:
        def settle(answer: Mapping[str, Any] | str | None) -> None:
            self.roster.compare(node, self._likeness, answer)
            if self._state is State.READY:
                self.roster.tell_of_unlike()

        self._question(
            node.identifier,
            {"call": "compare"},
            on_answer=lambda head, _: settle(head),
            on_fault=lambda fault: settle(None if fault.kind in _NO_ANSWER else fault.message),
        )

    # Calls

    def call(
        self, number: int, options: Mapping[str, Any], payload: bytes, *, on_answer: OnAnswer, on_fault: OnFault
    ) -> None:
        with self._changed:
            bridge = self._bridge
            if bridge is not None:
                place = options.get("node", "")
                self._calls[number] = _Call(on_answer=on_answer, on_fault=on_fault, place=place)
        if bridge is None:
            on_fault(Fault(kind=OutcomeKind.LOST, message=self._lost_message()))
        else:
            bridge.call(number, options, payload)

    def cancel(self, number: int, *, force: bool) -> None:
        bridge = self._bridge
        if bridge is not None:
            bridge.cancel(number, force=force)

    def ask(
        self, node: str, head: Mapping[str, Any], blobs: Sequence[bytes] = ()
    ) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        """Call a node and wait for its answer. Raises NodeLostError and NodeTroubleError."""
        answered = Answered()
        self._question(node, head, blobs, on_answer=answered.on_answer, on_fault=answered.on_fault)
        answered.wait()
        if answered.fault is not None:
            raise NodeLostError(f"{self.roster.name_of(node)}: {answered.fault.message}")
        if "trouble" in answered.head:
            raise NodeTroubleError(answered.head["trouble"], is_full=answered.head["is_full"])
        return answered.head, answered.blobs

    def _question(
        self,
        node: str,
        head: Mapping[str, Any],
        blobs: Sequence[bytes] = (),
        *,
        on_answer: OnAnswer,
        on_fault: OnFault,
    ) -> None:
        options = {"num_cpus": 0, "node": node}
        payload = pack({**head, "surroundings": self._surroundings}, blobs)
        self.call(next(self._numbers), options, payload, on_answer=on_answer, on_fault=on_fault)

    # What the bridge says, in its client's thread

    def _on_frame(self, head: Mapping[str, Any], payload: bytes) -> None:
        match head["is"]:
            case "answer":
                call = self._calls.pop(head["number"], None)
                if call is not None:
                    call.on_answer(*unpack(payload))
            case "fault":
                call = self._calls.pop(head["number"], None)
                if call is not None:
                    kind = OutcomeKind(head["kind"])
                    call.on_fault(Fault(kind=kind, message=head["message"], peak_bytes=head["peak_bytes"]))
            case "nodes":
                self._on_nodes([Node.from_json(node) for node in head["nodes"]])
            case "refused":
                with self._changed:
                    self._refused = head["message"]
                    self._is_hopeless = not head["passes"]
                    self._changed.notify_all()
            case _:
                pass

    def _on_nodes(self, nodes: Sequence[Node]) -> None:
        """What was for a node that has gone is not waited for: Ray may be long to see that nobody answers it."""
        with self._changed:
            gone = self.roster.set(nodes)
            lost = [self._calls.pop(number) for number, call in list(self._calls.items()) if call.place in gone]
        for call in lost:
            call.on_fault(Fault(kind=OutcomeKind.LOST, message=NODE_WENT_AWAY))

    def _on_end(self, last_words: str) -> None:
        reason = self._lost_message()
        with self._changed:
            bridge, self._bridge = self._bridge, None
            self.roster.set(None)
            self._refused = self._refused or last_words
            was_ready = self._state is State.READY and not self._closed
            calls, self._calls = self._calls, {}
            if was_ready:
                self._begin(self._settings.reconnect_seconds)
            self._changed.notify_all()
        for call in calls.values():
            call.on_fault(Fault(kind=OutcomeKind.LOST, message=reason))
        if was_ready:
            self._on_lost(reason)
            if bridge is not None:
                bridge.close()
