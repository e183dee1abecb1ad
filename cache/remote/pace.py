"""When a transfer is given up: not once it has lasted long, but once it no longer moves as much as it has to.

A deadline made of the size that is announced gives a server that sends a byte now and then hours for a gigabyte. Here
time is given for bytes that have moved.
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


class Pace:
    """The time that a transfer has left; thread-safe.

    It begins with `slack` seconds. Time uses them up, and every byte that moves gives back what it takes at
    `bytes_per_second`, never to more than `slack`. So it is over as soon as any stretch of it, however it went before,
    has taken `slack` seconds longer than the bytes of that stretch take at that pace: where nothing moves after `slack`
    seconds, and never while at least that pace is kept. It is over, too, after `idle` seconds in which nothing moved.
    Once over it stays so. `clock` counts seconds and does not go back.
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
        self._resting_since: float | None = None
        self._rested: float = 0
        now = clock()
        self._end = now + slack
        self._heard = now

    @property
    def left(self) -> float:
        """Seconds until it is over if nothing moves; 0 where it is."""
        with self._lock:
            return max(0.0, self._until() - self._now())

    def moved(self, count: int) -> None:
        """So many bytes, or with 0 something that carries none, went or came just now."""
        with self._lock:
            now = self._now()
            if now < self._until():
                self._heard = now
                self._end = min(self._end + count / self._bytes_per_second, now + self._slack)

    def may_be_silent(self, *, underway: int = 0) -> None:
        """From here on silence alone does not end it: the other side works with what it has got, and so many bytes may
        not have arrived there yet, although they were said to have moved.
        """
        with self._lock:
            if self._now() < self._until():
                self._idle = math.inf
                self._end += underway / self._bytes_per_second

    def rest(self) -> None:
        """What passes until `resume` is our own time. To rest twice is to rest."""
        with self._lock:
            if self._resting_since is None:
                self._resting_since = self._clock()

    def resume(self) -> None:
        with self._lock:
            if self._resting_since is not None:
                self._rested += self._clock() - self._resting_since
                self._resting_since = None

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        self.rest()
        try:
            yield
        finally:
            self.resume()

    def _now(self) -> float:
        """On a clock that stands still while it rests."""
        return (self._clock() if self._resting_since is None else self._resting_since) - self._rested

    def _until(self) -> float:
        return min(self._end, self._heard + self._idle)


class Watch:
    """A context in which `cut` is called, by another thread, once no time is `left`: for waits without a time-out.

    `left` is asked again and again before that, so that it may look for what has moved.
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
