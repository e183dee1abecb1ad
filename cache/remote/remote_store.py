"""A remote cache over any transports. Whatever servers do, a build gets the right bytes or none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.remote.counters import Counters, MissReason, Tally
from mlcbuild.cache.remote.downloads import Downloads
from mlcbuild.cache.remote.open_lookups import OpenLookups
from mlcbuild.cache.remote.policy import RemotePolicy, RemoteRole, Upload
from mlcbuild.cache.remote.remote_server import Access, RemoteServer
from mlcbuild.cache.remote.results import unique
from mlcbuild.cache.remote.server_lookup import Check, FoundResult, ServerLookup, first_reason
from mlcbuild.cache.remote.thread_pool import ThreadPool
from mlcbuild.cache.remote.transport import ErrorKind, Transport, TransportError
from mlcbuild.cache.remote.upload_queue import UploadQueue
from mlcbuild.cache.remote.uploads import Sign, UploadRequest, Uploads
from mlcbuild.cache.store import LocalBlobStore
from mlcbuild.errors import MlcbuildError

_ENDING_SECONDS = 0.2  # for lookups that are about to end
_FIRST_ANSWER_SECONDS = 1.0  # the same, if nothing is known of a server yet: a client takes a while to connect


def _believe(_key: Digest, _result: ActionResult) -> str:
    return ""


def _as_it_is(_key: Digest, result: ActionResult) -> ActionResult:
    return result


class RemoteStore:
    """A RemoteCache for the engine (engine/remote.py), over one transport or several.

    All transports are read, in their order, and the first one is written. So a namespace can lie over a cache that
    others trust. `check` answers why a result is not trusted, or ""; `check_first` replaces it for the first transport.
    `sign` returns the result with a signature. All three are called from several threads.

    Failures of servers are not raised. They are counted, and reported to the caller of `start`, once for each kind and
    server. A store is for one build. It owns the transports, and `close` closes them.
    """

    def __init__(
        self,
        transports: Sequence[Transport],
        policy: RemotePolicy,
        *,
        check: Check = _believe,
        check_first: Check | None = None,
        sign: Sign = _as_it_is,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], bool] | None = None,
        seed: int | None = None,
    ) -> None:
        if not transports:
            raise ValueError("a remote cache needs a server")
        if len({transport.function for transport in transports}) != 1:
            raise ValueError("the servers of one remote cache must use one digest function")
        self._policy = policy
        self._tally = Tally()
        self._tell: Callable[[str], object] = lambda _: None
        self._stopped = threading.Event()
        self._downloading = ThreadPool(policy.downloads, "remote-download")
        self._uploading = ThreadPool(policy.uploads, "remote-upload")
        self._sending = ThreadPool(max(1, policy.uploads // 2), "remote-send")
        self._servers = tuple(
            RemoteServer(
                transport,
                purpose=policy.purpose,
                policy=policy.retries,
                limits=policy.breaker,
                tally=self._tally,
                warn=self._warn,
                stopped=self._stopped,
                on_recovery=self._on_recovery if number == 0 else lambda: None,
                clock=clock,
                sleep=sleep,
                seed=seed,
            )
            for number, transport in enumerate(transports)
        )
        self._downloads = Downloads(
            self._servers, purpose=policy.purpose, threads=self._downloading, tally=self._tally, warn=self._warn
        )
        self._lookups = tuple(
            ServerLookup(
                server,
                downloads=self._downloads,
                tally=self._tally,
                check=check if number or check_first is None else check_first,
                asks_for_blobs=policy.asks_for_blobs,
                warn=self._warn,
            )
            for number, server in enumerate(self._servers)
        )
        self._uploads = Uploads(
            self._servers[0],
            threads=self._uploading,
            tally=self._tally,
            sign=sign,
            replaces=policy.replaces,
            warn=self._warn,
        )
        self._upload_queue = UploadQueue(
            self._send,
            threads=self._sending,
            tally=self._tally,
            may_retry=self._may_send_later,
            failed=self._not_sent,
        )
        self._open_lookups = OpenLookups()
        self._has_told_not_sent = False
        self._lock = threading.Lock()
        self._keys_by_blob: dict[Digest, Digest] = {}  # of results found in this build
        self._stale: set[Digest] = set()  # keys of results on the first server that cannot be used

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(server.address for server in self._servers)

    @property
    def counters(self) -> Counters:
        return self._tally.counters()

    @property
    def sending(self) -> int:
        """How many results are being sent."""
        return self._upload_queue.waiting

    @property
    def bytes_downloaded(self) -> int:
        return self.counters.bytes_downloaded

    @property
    def bytes_uploaded(self) -> int:
        return self.counters.bytes_uploaded

    @property
    def sends_what_was_found(self) -> bool:
        return self._policy.sends and self._policy.upload is Upload.ALWAYS

    @property
    def may_be_overtaken(self) -> bool:
        return self._policy.races

    def start(self, tell: Callable[[str], object]) -> None:
        self._tell = tell

    def find(self, key: Digest, store: LocalBlobStore) -> ActionResult | None:
        if self._policy.role is RemoteRole.NONE:
            return None
        found: ActionResult | MissReason = MissReason.FAILED
        with self._open_lookups.begun() as lookup:
            try:
                found = self._find(key, store)
            finally:
                if self._open_lookups.end(lookup):
                    if isinstance(found, MissReason):
                        self._tally.missed(found)
                    else:
                        self._tally.add(hits=1)
        return None if isinstance(found, MissReason) else found

    def _find(self, key: Digest, store: LocalBlobStore) -> ActionResult | MissReason:
        reasons = []
        for number, lookup in enumerate(self._lookups):
            found = lookup.find(key, store)
            if isinstance(found, FoundResult):
                with self._lock:
                    self._keys_by_blob.update(dict.fromkeys(store.missing(found.blobs), key))
                return found.result
            reasons.append(found)
            if number == 0 and found in (MissReason.INVALID, MissReason.UNSIGNED, MissReason.INCOMPLETE):
                self._stale.add(key)
        return first_reason(reasons)

    def fetch(self, digests: Sequence[Digest], store: LocalBlobStore) -> tuple[Digest, ...]:
        if self._policy.role is RemoteRole.NONE:
            return store.missing(digests)
        lost = self._downloads.fetch(digests, store)
        if lost:
            self._tally.add(blobs_lost=len(lost))
            with self._lock:
                self._stale.update(self._keys_by_blob[digest] for digest in lost if digest in self._keys_by_blob)
        return lost

    def send(self, key: Digest, result: ActionResult, outputs: Sequence[Digest], store: LocalBlobStore) -> None:
        """Send blobs and then the result in the background, from the store's files. Returns at once."""
        if not self._policy.sends:
            return
        server = self._servers[0]
        if server.is_off_for_good(Access.WRITE):
            self._tally.add(uploads_dropped=1)
            return
        request = UploadRequest(
            key=key,
            result=result,
            outputs=unique(*outputs),
            store=store,
            replace=self._policy.replaces or key in self._stale,
        )
        recoveries = self._upload_queue.recoveries
        if server.is_off(Access.WRITE):
            self._upload_queue.keep(request, recoveries=recoveries)
        else:
            self._upload_queue.put(request)

    def send_and_wait(
        self, key: Digest, result: ActionResult, outputs: Sequence[Digest], store: LocalBlobStore
    ) -> None:
        """Send as `send` does, but return when the server has this result of the key, or has kept another one. Sends
        nothing if the policy does not. Raises CacheError."""
        if self._policy.sends:
            self._uploads.send(
                UploadRequest(key=key, result=result, outputs=unique(*outputs), store=store, replace=False)
            )

    def send_blobs(self, digests: Sequence[Digest], store: LocalBlobStore) -> None:
        """Send blobs, and return when the server has them. Raises CacheError."""
        self._uploads.send_blobs(digests, store)

    def finish(self) -> None:
        """Wait for uploads, at most for the policy's `drain_seconds`. Those that failed are tried once more.

        Reports the uploads that were dropped, and the last failure of each server, unless failures were reported. A
        lookup without an answer counts as timed out. May be called from another thread than `abandon`.
        """
        server, seconds = self._servers[0], self._policy.drain_seconds
        address = server.address
        server.allow_trial()
        dropped, failed = self._upload_queue.drain(
            seconds,
            lambda left: self._warn(f"waiting up to {seconds:g} s for uploads to {address}: {_results(left)} left"),
            is_off=lambda: server.is_off(Access.WRITE),
        )
        self._end_lookups()
        for each in self._servers:
            each.tell_last_failure()
        if failed:
            self._warn(
                f"{_results(failed)} not sent to {address}, which keeps failing: `mlcbuild cache push` sends them"
            )
        if dropped:
            work = self._policy.purpose.value
            self._warn(f"{_results(dropped)} not sent to {address}: the {work} waits at most {seconds:g} s for uploads")

    def abandon(self) -> None:
        """Drop all uploads that have not ended, now."""
        self._stopped.set()
        self._upload_queue.drain(0.0, lambda _: None)
        self._end_lookups()

    def close(self) -> None:
        """Close the transports. Nothing may be called afterwards."""
        self.abandon()
        for threads in (self._downloading, self._uploading, self._sending):
            threads.close()
        for server in self._servers:
            server.transport.close()

    # Inside

    def _warn(self, message: str) -> None:
        self._tell(message)

    def _send(self, request: UploadRequest) -> None:
        if self._stopped.is_set():
            raise MlcbuildError(f"the {self._policy.purpose.value} has ended")
        self._uploads.send(request)

    def _end_lookups(self) -> None:
        """Let lookups end that wait before a retry, and count those that have no answer."""
        has_answered = any(server.has_answered for server in self._servers)
        self._stopped.set()
        unanswered = self._open_lookups.close(_ENDING_SECONDS if has_answered else _FIRST_ANSWER_SECONDS)
        for _ in range(unanswered):
            self._tally.missed(MissReason.TIMED_OUT)

    def _may_send_later(self, error: MlcbuildError) -> bool:
        is_later = isinstance(error, TransportError) and error.kind in (ErrorKind.TRANSIENT, ErrorKind.OFF)
        return is_later and not self._servers[0].is_off_for_good(Access.WRITE) and not self._stopped.is_set()

    def _on_recovery(self) -> None:
        self._upload_queue.retry()

    def _not_sent(self, error: MlcbuildError) -> None:
        """Report an error of one item. RemoteServer has already reported errors of the server."""
        is_told = isinstance(error, TransportError) and error.kind is not ErrorKind.ITEM
        if is_told or self._stopped.is_set() or self._has_told_not_sent:
            return
        self._has_told_not_sent = True
        self._warn(f"a result was not sent to {self._servers[0].address}: {error}")


def _results(count: int) -> str:
    return "1 result" if count == 1 else f"{count} results"
