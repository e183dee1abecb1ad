"""A queue of uploads in the background. The end of a build waits for it, but not for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from mlcbuild.cache.remote.counters import Tally
from mlcbuild.cache.remote.thread_pool import ThreadPool
from mlcbuild.cache.remote.uploads import UploadRequest
from mlcbuild.errors import MlcbuildError

_REPORTED_AFTER = 2.0  # seconds
_LAST_TRY_SECONDS = 10.0  # for the first of the uploads that failed before, at the end


class UploadQueue:
    """Uploads that are in progress, and those that failed and may be tried again.

    `send` raises MlcbuildError for a failed upload. `may_retry` decides whether the upload is kept for `retry`;
    otherwise it is dropped, and `failed` is called with the error.
    """

    def __init__(
        self,
        send: Callable[[UploadRequest], None],
        *,
        threads: ThreadPool,
        tally: Tally,
        may_retry: Callable[[MlcbuildError], bool] = lambda _: False,
        failed: Callable[[MlcbuildError], object],
    ) -> None:
        self._send = send
        self._threads = threads
        self._tally = tally
        self._may_retry = may_retry
        self._failed = failed
        self._changed = threading.Condition()
        self._waiting = 0
        self._kept: list[UploadRequest] = []
        self._recoveries = 0
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

    @property
    def recoveries(self) -> int:
        """How often `retry` was called."""
        return self._recoveries

    def keep(self, request: UploadRequest, *, recoveries: int) -> None:
        """Add an upload that waits for `retry`, or is sent at once if that was called since there were so many
        `recoveries`."""
        with self._changed:
            if self._recoveries == recoveries and not self._is_closed:
                self._kept.append(request)
                return
        self.put(request)

    def retry(self) -> None:
        """Send what has failed before. Returns at once."""
        with self._changed:
            kept, self._kept = self._kept, []
            self._recoveries += 1
        for request in kept:
            self.put(request)

    def drain(
        self, seconds: float, tell: Callable[[int], object], *, is_off: Callable[[], bool] = lambda: False
    ) -> tuple[int, int]:
        """Wait at most `seconds` for all uploads, try those again that have failed, and drop the rest.

        Answer how many were dropped while they were being sent, and how many because they had failed. No upload is
        accepted afterwards. If it takes more than two seconds, `tell` is called with the number of uploads. If the
        first of the failed uploads fails again and `is_off`, the others are not tried.
        """
        end = time.monotonic() + seconds
        with self._changed:
            first = min(seconds, _REPORTED_AFTER)
            if not self._changed.wait_for(self._is_done, first) and seconds > first:
                tell(self._waiting)
                self._changed.wait_for(self._is_done, seconds - first)
        tried: set[UploadRequest] = set()
        while (left := end - time.monotonic()) > 0:
            with self._changed:
                request = self._kept.pop(0) if self._kept else None
            if request is None:
                break
            self.put(request)
            with self._changed:
                self._changed.wait_for(self._is_done, min(left, _LAST_TRY_SECONDS))
                if self._waiting or (request in self._kept and is_off()):
                    break
                if request in self._kept and request in tried:  # It alone fails.
                    self._kept.remove(request)
                    self._tally.add(uploads_dropped=1)
                # Once more: several requests of an upload are made at a time, and only the first of them is a trial.
                tried.add(request)
            self.retry()
            with self._changed:
                self._changed.wait_for(self._is_done, max(0.0, end - time.monotonic()))
        with self._changed:
            self._is_closed = True
            dropped, self._waiting = self._waiting, 0
            failed, self._kept = len(self._kept), []
        self._tally.add(uploads_dropped=dropped + failed)
        return dropped, failed

    def _is_done(self) -> bool:
        return not self._waiting

    def _deliver(self, request: UploadRequest) -> None:
        if self._is_closed:
            return  # It was counted when the queue was closed.
        recoveries = self._recoveries
        error: MlcbuildError | None = None
        try:
            self._send(request)
        except MlcbuildError as raised:
            error = raised
        except Exception as raised:
            error = MlcbuildError(f"sending the result of {request.key} failed: {raised!r}")
        is_kept = error is not None and self._may_retry(error)
        with self._changed:
            if self._is_closed:
                return
            # One request of this upload may have been the trial that showed that the server is back, while the others
            # were refused: `retry` has come before the upload failed, and would not come again.
            has_recovered = is_kept and self._recoveries != recoveries
            if not has_recovered:
                self._waiting -= 1
                self._kept += [request] if is_kept else []
                self._changed.notify_all()
        if has_recovered:
            self._threads.run(lambda: self._deliver(request))
        if error is not None and not is_kept:
            self._tally.add(uploads_dropped=1)
            self._failed(error)
