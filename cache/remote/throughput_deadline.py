"""When a slow transfer is given up: when it moves too few bytes, not when it has lasted long.

A deadline computed from the announced size would give a server that trickles one byte a second hours for a gigabyte.
Here only bytes that have moved extend the deadline.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

_SOON_SECONDS = 0.02


class ThroughputDeadline:
    """The time that a transfer has left. Thread-safe.

    It starts with `slack` seconds. Passing time uses them up. Each byte that moves gives back 1 / `bytes_per_second`
    seconds, but never to more than `slack`. So the deadline passes as soon as any stretch of the transfer takes `slack`
    seconds longer than its bytes take at `bytes_per_second`, and never while the transfer is at least that fast. It
    also passes after `idle` seconds in which nothing moves. Once passed it stays passed. `clock` counts seconds and
    never goes back.
    """

    def __init__(
        self,
        *,
        slack: float,
        bytes_per_second: float = math.inf,
        idle: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slack = slack
        self._bytes_per_second = bytes_per_second
        self._idle = idle
        self._clock = clock
        self._lock = threading.Lock()
        self._paused_since: float | None = None
        self._paused_seconds: float = 0
        now = clock()
        self._end = now + slack
        self._heard = now

    @property
    def left(self) -> float:
        """Seconds until it passes if nothing moves; 0 once it has passed."""
        with self._lock:
            return max(0.0, self._until() - self._now())

    def moved(self, count: int) -> None:
        """`count` bytes were sent or received just now; 0 for a sign of life without bytes."""
        with self._lock:
            now = self._now()
            if now < self._until():
                self._heard = now
                self._end = min(self._end + count / self._bytes_per_second, now + self._slack)

    def allow_silence(self, *, in_flight: int = 0) -> None:
        """From now on silence alone does not end it: the server processes what it has received.

        `in_flight` bytes were counted as moved but may not have arrived yet; they extend the deadline once more.
        """
        with self._lock:
            if self._now() < self._until():
                self._idle = math.inf
                self._end += in_flight / self._bytes_per_second

    def pause(self) -> None:
        """Stop the clock until `resume`: this machine is busy, not the server. A second `pause` does nothing."""
        with self._lock:
            if self._paused_since is None:
                self._paused_since = self._clock()

    def resume(self) -> None:
        with self._lock:
            if self._paused_since is not None:
                self._paused_seconds += self._clock() - self._paused_since
                self._paused_since = None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def _now(self) -> float:
        """The time on a clock that stands still while paused."""
        return (self._clock() if self._paused_since is None else self._paused_since) - self._paused_seconds

    def _until(self) -> float:
        return min(self._end, self._heard + self._idle)


class Watchdog:
    """A context manager that calls `cut` from another thread once `left` answers 0: for waits that have no timeout.

    It calls `left` repeatedly until then, so `left` may look for progress.
    """

    def __init__(self, left: Callable[[], float], cut: Callable[[], object]) -> None:
        self.has_cut = False
        self._left = left
        self._cut = cut
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="remote-cache-watch", daemon=True)

    def _watch(self) -> None:
        while (left := self._left()) > 0:
            if self._over.wait(min(left, max(left / 2, _SOON_SECONDS), threading.TIMEOUT_MAX)):
                return
        if not self._over.is_set():
            self.has_cut = True
            self._cut()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
