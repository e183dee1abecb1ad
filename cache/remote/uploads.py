"""Uploads a result to a server: first its blobs, then the result, so that no result is found without its blobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.remote.batches import batched_bytes, has_batches, upload_many
from mlcbuild.cache.remote.counters import Tally, TransferProgress
from mlcbuild.cache.remote.remote_server import Access, RemoteServer
from mlcbuild.cache.remote.result_checksum import with_checksum
from mlcbuild.cache.remote.results import blobs_in, explanation_of, unique, with_contents
from mlcbuild.cache.remote.thread_pool import ThreadPool
from mlcbuild.cache.store import LocalBlobStore

Sign = Callable[[Digest, ActionResult], ActionResult]

# On S3 and HTTP a check costs one request per blob. For a small blob that costs as much as sending it.
ASK_FIRST_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True, eq=False)
class UploadRequest:
    """A result to upload with its blobs from the store. `outputs` include the files in Trees."""

    key: Digest
    result: ActionResult
    outputs: tuple[Digest, ...]
    store: LocalBlobStore
    replace: bool = False


class Uploads:
    """Uploads to one server. Thread-safe.

    With `replaces` every blob is sent and replaces an existing one. Without, only blobs that are known to be damaged on
    the server are replaced.
    """

    def __init__(
        self,
        server: RemoteServer,
        *,
        threads: ThreadPool,
        tally: Tally,
        sign: Sign,
        replaces: bool,
        warn: Callable[[str], object],
    ) -> None:
        self._server = server
        self._threads = threads
        self._tally = tally
        self._sign = sign
        self._replaces = replaces
        self._warn = warn
        self._lock = threading.Lock()
        self._sent: set[Digest] = set()  # by this process; all other blobs are checked each time
        self._has_told_kept = False

    def send(self, request: UploadRequest) -> None:
        """Upload blobs and result. Raises CacheError without sending the result: TransportError, BlobMissingError for a
        blob that is gone from the store, or what `sign` raises.
        """
        transport = self._server.transport
        signed = self._sign(request.key, with_contents(request.result, request.store))
        encoded = with_checksum(request.key, signed, transport.function).encode()
        explanation = explanation_of(request.key, request.result, request.store)
        absent = set(request.store.missing(explanation))  # A result may have come from a server without them.
        known = [digest for digest in explanation if digest not in absent]
        self.send_blobs(unique(*blobs_in(request.result), *request.outputs, *known), request.store)
        was_written = self._server.ask(
            Access.WRITE, lambda: transport.write_result(request.key, encoded, replace=request.replace)
        )
        if was_written:
            self._tally.add(results_uploaded=1, bytes_uploaded=len(encoded))

    def send_blobs(self, digests: Sequence[Digest], store: LocalBlobStore) -> None:
        """Upload the blobs that the server does not have. Raises CacheError, like `send`."""
        with self._lock:
            left = [digest for digest in dict.fromkeys(digests) if digest.size_bytes and digest not in self._sent]
            replaced = {digest for digest in left if self._replaces or digest in self._server.damaged}
        left = self._not_there([digest for digest in left if digest not in replaced], store)
        together = batched_bytes(self._server.transport) if has_batches(self._server.transport) else -1
        jobs: list[Callable[[], None]] = []
        for blobs, replace in ((left, False), (replaced, True)):
            small = [digest for digest in blobs if digest.size_bytes <= together]
            jobs += [
                partial(self._send_one, digest, store, replace=replace)
                for digest in blobs
                if digest.size_bytes > together
            ]
            if small:
                jobs.append(partial(self._send_together, small, store, replace=replace))
        self._threads.for_each(lambda job: job(), jobs)

    def _not_there(self, digests: Sequence[Digest], store: LocalBlobStore) -> list[Digest]:
        """The blobs to send. Small blobs that are in the store are sent without asking, as that is cheaper."""
        transport = self._server.transport
        batches = has_batches(transport)
        elsewhere = set(store.missing(digests))
        asked = [digest for digest in digests if batches or digest.size_bytes > ASK_FIRST_BYTES or digest in elsewhere]
        if not asked:
            return list(digests)
        missing = set(self._server.ask(Access.WRITE, lambda: transport.missing(asked)))
        there = {digest for digest in asked if digest not in missing}
        return [digest for digest in digests if digest not in there]

    def _send_one(self, digest: Digest, store: LocalBlobStore, *, replace: bool) -> None:
        path, transport = store.path_of(digest), self._server.transport
        with TransferProgress(self._tally, "bytes_uploaded", digest.size_bytes) as progress:

            def attempt() -> bool:
                progress.restart()
                return transport.upload(digest, path, replace=replace, on_sent=progress.moved)

            is_new = self._server.ask(Access.WRITE, attempt, size_bytes=digest.size_bytes)
            if is_new:
                progress.complete()
        self._note([digest], kept=() if is_new else (digest,), replace=replace)

    def _send_together(self, digests: Sequence[Digest], store: LocalBlobStore, *, replace: bool) -> None:
        blobs = [(digest, store.path_of(digest)) for digest in digests]
        kept = set(self._server.ask(Access.WRITE, lambda: upload_many(self._server.transport, blobs, replace=replace)))
        self._note(digests, kept=tuple(kept), replace=replace)
        self._tally.add(bytes_uploaded=sum(digest.size_bytes for digest in digests if digest not in kept))

    def _note(self, digests: Sequence[Digest], *, kept: Sequence[Digest], replace: bool) -> None:
        with self._lock:
            self._sent.update(digests)
            still_damaged = [digest for digest in kept if digest in self._server.damaged]
            tells = replace and bool(still_damaged) and not self._has_told_kept
            self._has_told_kept |= tells
            self._server.damaged.difference_update(digests)
        self._tally.add(blobs_uploaded=len(set(digests) - set(kept)))
        if tells:
            self._warn(
                f"the remote cache {self._server.address} still has wrong bytes for {still_damaged[0]}, although it "
                "was uploaded again: delete the blob there"
            )
