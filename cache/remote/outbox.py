"""What is to be sent, sent in the background, and waited for at the end, though not for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mlcbuild.cache.remote.counters import Tally
from mlcbuild.cache.remote.uploads import Parcel
from mlcbuild.cache.remote.workers import Workers
from mlcbuild.errors import MlcbuildError

_SAID_AFTER = 2.0  # seconds


class Outbox:
    """Parcels on their way. `send` raises MlcbuildError for one that did not arrive; `failed` is told."""

    def __init__(
        self,
        send: Callable[[Parcel], None],
        *,
        workers: Workers,
        tally: Tally,
        failed: Callable[[MlcbuildError], object],
    ) -> None:
        self._send = send
        self._workers = workers
        self._tally = tally
        self._failed = failed
        self._changed = threading.Condition()
        self._waiting = 0
        self._is_closed = False

    @property
    def waiting(self) -> int:
        return self._waiting

    def put(self, parcel: Parcel) -> None:
        """Returns at once."""
        with self._changed:
            if self._is_closed:
                self._tally.add(uploads_dropped=1)
                return
            self._waiting += 1
        self._workers.run(lambda: self._deliver(parcel))

    def drain(self, seconds: float, tell: Callable[[int], object]) -> int:
        """Wait for what is under way, at most so long, and drop the rest: how many. Nothing is taken afterwards.

        `tell` is called with the number that is waited for where that takes more than two seconds.
        """
        with self._changed:
            first = min(seconds, _SAID_AFTER)
            if not self._changed.wait_for(self._is_done, first) and seconds > first:
                tell(self._waiting)
                self._changed.wait_for(self._is_done, seconds - first)
            self._is_closed = True
            dropped, self._waiting = self._waiting, 0
        self._tally.add(uploads_dropped=dropped)
        return dropped

    def _is_done(self) -> bool:
        return not self._waiting

    def _deliver(self, parcel: Parcel) -> None:
        if self._is_closed:
            return  # Counted when it was closed.
        error: MlcbuildError | None = None
        try:
            self._send(parcel)
        except MlcbuildError as raised:
            error = raised
        except Exception as raised:
            error = MlcbuildError(f"sending the result of {parcel.key} failed: {raised!r}")
        with self._changed:
            if self._is_closed:
                return
            self._waiting -= 1
            self._changed.notify_all()
        if error is not None:
            self._tally.add(uploads_dropped=1)
            self._failed(error)
