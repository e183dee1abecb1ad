"""Gives up a stream on which nothing moves.

gRPC knows a deadline for a whole call, which for gigabytes is hours; waiting for one message of a stream has no
time limit of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Silence:
    """A context in which `cancel` is called once nothing was `heard` for `seconds`."""

    def __init__(self, seconds: float, cancel: Callable[[], object]) -> None:
        self.is_too_long = False
        self._seconds = seconds
        self._cancel = cancel
        self._until = time.monotonic() + seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="remote-cache-silence", daemon=True)

    def heard(self, *, next_within: float = 0.0) -> None:
        """Something moved; the next thing may take `next_within` seconds instead of the usual."""
        self._until = time.monotonic() + max(next_within, self._seconds)

    def _watch(self) -> None:
        while (left := self._until - time.monotonic()) > 0:
            if self._over.wait(left):
                return
        self.is_too_long = True
        self._cancel()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
