"""A queue of uploads in the background. The end of a build waits for it, but not for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mlcbuild.cache.remote.counters import Tally
from mlcbuild.cache.remote.thread_pool import ThreadPool
from mlcbuild.cache.remote.uploads import UploadRequest
from mlcbuild.errors import MlcbuildError

_REPORTED_AFTER = 2.0  # seconds


class UploadQueue:
    """Uploads that are in progress. `send` raises MlcbuildError for a failed upload, and `failed` is called with it."""

    def __init__(
        self,
        send: Callable[[UploadRequest], None],
        *,
        threads: ThreadPool,
        tally: Tally,
        failed: Callable[[MlcbuildError], object],
    ) -> None:
        self._send = send
        self._threads = threads
        self._tally = tally
        self._failed = failed
        self._changed = threading.Condition()
        self._waiting = 0
        self._is_closed = False

    @property
    def waiting(self) -> int:
        return self._waiting

    def put(self, request: UploadRequest) -> None:
        """Add an upload. Returns at once."""
        with self._changed:
            if self._is_closed:
                self._tally.add(uploads_dropped=1)
                return
            self._waiting += 1
        self._threads.run(lambda: self._deliver(request))

    def drain(self, seconds: float, tell: Callable[[int], object]) -> int:
        """Wait at most `seconds` for all uploads, and drop the rest. Answer how many were dropped.

        No upload is accepted afterwards. If it takes more than two seconds, `tell` is called with the number of
        uploads.
        """
        with self._changed:
            first = min(seconds, _REPORTED_AFTER)
            if not self._changed.wait_for(self._is_done, first) and seconds > first:
                tell(self._waiting)
                self._changed.wait_for(self._is_done, seconds - first)
            self._is_closed = True
            dropped, self._waiting = self._waiting, 0
        self._tally.add(uploads_dropped=dropped)
        return dropped

    def _is_done(self) -> bool:
        return not self._waiting

    def _deliver(self, request: UploadRequest) -> None:
        if self._is_closed:
            return  # It was counted when the queue was closed.
        error: MlcbuildError | None = None
        try:
            self._send(request)
        except MlcbuildError as raised:
            error = raised
        except Exception as raised:
            error = MlcbuildError(f"sending the result of {request.key} failed: {raised!r}")
        with self._changed:
            if self._is_closed:
                return
            self._waiting -= 1
            self._changed.notify_all()
        if error is not None:
            self._tally.add(uploads_dropped=1)
            self._failed(error)
