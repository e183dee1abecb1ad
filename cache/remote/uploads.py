"""One result to a server: its blobs, then itself, so that nobody finds a result whose blobs are not there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.remote.batches import batched_bytes, has_batches, upload_many
from mlcbuild.cache.remote.counters import Tally
from mlcbuild.cache.remote.peer import Peer, Use
from mlcbuild.cache.remote.results import blobs_in, explanation_of, unique, with_contents
from mlcbuild.cache.remote.workers import Workers
from mlcbuild.cache.store import LocalBlobStore

Sign = Callable[[Digest, ActionResult], ActionResult]

# Where a question costs a request a blob, as on S3 and over HTTP, one about a small blob costs what sending it does.
ASK_FIRST_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Parcel:
    """A result that is to be sent with its blobs, which stay in the store. `outputs`: those inside Trees among them."""

    key: Digest
    result: ActionResult
    outputs: tuple[Digest, ...]
    store: LocalBlobStore
    replace: bool = False


class Uploads:
    """To one server. Thread-safe."""

    def __init__(self, peer: Peer, *, workers: Workers, tally: Tally, sign: Sign) -> None:
        self._peer = peer
        self._workers = workers
        self._tally = tally
        self._sign = sign
        self._lock = threading.Lock()
        self._sent: set[Digest] = set()  # by this process; whether others' are still there is asked each time

    def send(self, parcel: Parcel) -> None:
        """Raises CacheError: TransportError, BlobMissingError for what has gone from the store, or what `sign` raises.
        The result is not sent then.
        """
        transport = self._peer.transport
        signed = self._sign(parcel.key, with_contents(parcel.result, parcel.store)).encode()
        explanation = explanation_of(parcel.key, parcel.result, parcel.store)
        self._send_blobs(unique(*blobs_in(parcel.result), *parcel.outputs, *explanation), parcel.store)
        was_written = self._peer.ask(
            Use.WRITE, lambda: transport.write_result(parcel.key, signed, replace=parcel.replace)
        )
        if was_written:
            self._tally.add(results_uploaded=1, bytes_uploaded=len(signed))

    def _send_blobs(self, digests: Sequence[Digest], store: LocalBlobStore) -> None:
        with self._lock:
            left = [digest for digest in dict.fromkeys(digests) if digest.size_bytes and digest not in self._sent]
        transport = self._peer.transport
        batches = has_batches(transport)
        asked = [digest for digest in left if batches or digest.size_bytes > ASK_FIRST_BYTES]
        if asked:
            missing = set(self._peer.ask(Use.WRITE, lambda: transport.missing(asked)))
            there = {digest for digest in asked if digest not in missing}
            left = [digest for digest in left if digest not in there]
        together = batched_bytes(transport) if batches else -1
        small = [digest for digest in left if digest.size_bytes <= together]
        jobs: list[Callable[[], None]] = [
            (lambda digest=digest: self._send_one(digest, store))  # type: ignore[misc]
            for digest in left
            if digest.size_bytes > together
        ]
        if small:
            jobs.append(lambda: self._send_together(small, store))
        self._workers.each(lambda job: job(), jobs)

    def _send_one(self, digest: Digest, store: LocalBlobStore) -> None:
        path, transport = store.path_of(digest), self._peer.transport
        is_new = self._peer.ask(Use.WRITE, lambda: transport.upload(digest, path), size_bytes=digest.size_bytes)
        self._note([digest], count=1 if is_new else 0, size=digest.size_bytes if is_new else 0)

    def _send_together(self, digests: Sequence[Digest], store: LocalBlobStore) -> None:
        blobs = [(digest, store.path_of(digest)) for digest in digests]
        self._peer.ask(Use.WRITE, lambda: upload_many(self._peer.transport, blobs))
        self._note(digests, count=len(digests), size=sum(digest.size_bytes for digest in digests))

    def _note(self, digests: Sequence[Digest], *, count: int, size: int) -> None:
        with self._lock:
            self._sent.update(digests)
        self._tally.add(blobs_uploaded=count, bytes_uploaded=size)
