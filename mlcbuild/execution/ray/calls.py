"""Calls to nodes that wait for their answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlcbuild.execution.ray.call_failures import CallFailure

OnAnswer = Callable[[Mapping[str, Any], Sequence[bytes]], None]
OnFailure = Callable[[CallFailure], None]


class NodeLostError(Exception):
    """A node died, or lost what it had. The action may run again elsewhere."""


class NodeError(Exception):
    """A node cannot do what it is asked for."""

    def __init__(self, message: str, *, disk_is_full: bool) -> None:
        super().__init__(message)
        self.disk_is_full = disk_is_full


class PendingAnswer:
    """Waits for the answer to one call."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._began = time.monotonic()
        self.seconds = 0.0  # until the answer
        self.head: Mapping[str, Any] = {}
        self.blobs: Sequence[bytes] = ()
        self.failure: CallFailure | None = None

    def on_answer(self, head: Mapping[str, Any], blobs: Sequence[bytes]) -> None:
        self.head, self.blobs = head, blobs
        self.seconds = time.monotonic() - self._began
        self._event.set()

    def on_failure(self, failure: CallFailure) -> None:
        self.failure = failure
        self._event.set()

    def wait(self, seconds: float | None = None) -> bool:
        return self._event.wait(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that waits for its answer. `node` is the only node that may answer it, because the call is meant for it or
    has begun there; "" if any node may. `on_move` has a call that has not begun made again.
    """

    on_answer: OnAnswer
    on_failure: OnFailure
    node: str
    on_move: Callable[[], None] | None = None


class PendingCalls:
    """By their numbers. Not thread-safe, except for `pop`."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}

    def add(self, number: int, call: Call) -> None:
        self._calls[number] = call

    def pop(self, number: int) -> Call | None:
        return self._calls.pop(number, None)

    def begun(self, number: int, node: str) -> None:
        """A node has begun with a call that any node could answer."""
        call = self._calls.get(number)
        if call is not None and not call.node:
            self._calls[number] = replace(call, node=node)

    def pop_movable(self) -> dict[int, Call]:
        """Those that have not begun anywhere, as far as is known, and can be made again."""
        waiting = [number for number, call in self._calls.items() if not call.node and call.on_move is not None]
        return {number: self._calls.pop(number) for number in waiting}

    def pop_all(self) -> list[Call]:
        calls, self._calls = self._calls, {}
        return list(calls.values())

    def pop_those_for(self, nodes: Collection[str]) -> dict[int, Call]:
        """By number: those that only these nodes can answer."""
        numbers = [number for number, call in self._calls.items() if call.node in nodes]
        return {number: self._calls.pop(number) for number in numbers}
