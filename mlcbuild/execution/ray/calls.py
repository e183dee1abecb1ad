"""Calls to nodes that wait for their answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
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
    """A call that waits for its answer. `node` is the only node that may answer it; "" if any node may."""

    on_answer: OnAnswer
    on_failure: OnFailure
    node: str


class PendingCalls:
    """By their numbers. Not thread-safe, except for `pop`."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}

    def add(self, number: int, call: Call) -> None:
        self._calls[number] = call

    def pop(self, number: int) -> Call | None:
        return self._calls.pop(number, None)

    def pop_all(self) -> list[Call]:
        calls, self._calls = self._calls, {}
        return list(calls.values())

    def pop_those_for(self, nodes: Collection[str]) -> list[Call]:
        return [self._calls.pop(number) for number, call in list(self._calls.items()) if call.node in nodes]
