"""Moves blobs between the store of a build and those of nodes through Ray, in pieces, when there is no other way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import DiskStore
from mlcbuild.execution.ray.calls import NodeLostError
from mlcbuild.execution.ray.cluster import Cluster

PIECE_BYTES = 8 << 20  # One piece of a blob is in flight at a time, so this is what a blob costs in memory.
_THREADS = 16
_MUCH_BYTES = 256 << 20


class BlobTransfer:
    """Threads that move blobs. However many actions wait for a blob on a node, it is sent there once."""

    def __init__(self, cluster: Cluster, store: DiskStore, say: Callable[[str], object]) -> None:
        self._say = say
        self._moved_bytes = 0
        self._cluster = cluster
        self._store = store
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ray-transfer")
        self._lock = threading.Lock()
        self._in_flight: dict[tuple[str, str, Digest], Future[None]] = {}

    def run(self, job: Callable[[], None]) -> None:
        try:
            self._threads.submit(job)
        except RuntimeError:
            pass  # It is closed, and the actions that were running have been reported as cancelled.

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def send(self, node: str, digest: Digest) -> None:
        """To a node, given by its identifier. Raises NodeLostError, NodeError, and the errors of the store."""
        self._once(("to", node, digest), lambda: self._send(node, digest))

    def fetch(self, node: str, digest: Digest) -> None:
        """From a node. Raises NodeLostError, NodeError, and the errors of the store."""
        if self._store.missing((digest,)):
            self._once(("from", node, digest), lambda: self._fetch(node, digest))

    def _count(self, size_bytes: int) -> None:
        """Tell people, once, why a build on a cluster may be slow."""
        with self._lock:
            before, self._moved_bytes = self._moved_bytes, self._moved_bytes + size_bytes
        if before < _MUCH_BYTES <= self._moved_bytes:
            self._say(
                f"more than {_MUCH_BYTES >> 20} MiB of this build went to nodes and back through Ray itself; with a "
                "remote cache that this build may write, or a shared directory, they would not (`mlcbuild help ray`)"
            )

    def _once(self, key: tuple[str, str, Digest], job: Callable[[], None]) -> None:
        with self._lock:
            other = self._in_flight.get(key)
            if other is None:
                mine: Future[None] = Future()
                self._in_flight[key] = mine
        if other is not None:
            return other.result()
        try:
            job()
            mine.set_result(None)
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._in_flight[key]

    def _send(self, node: str, digest: Digest) -> None:
        with self._store.open(digest) as stream:
            offset = 0
            while True:
                piece = _read(stream, PIECE_BYTES)
                is_last = offset + len(piece) >= digest.size_bytes
                head = {"call": "put piece", "digest": str(digest), "offset": offset, "is_last": is_last}
                answer, _ = self._cluster.ask(node, head, [piece])
                offset += len(piece)
                self._count(len(piece))
                if is_last:
                    break
        if not answer["is_stored"]:
            raise NodeLostError(f"{self._cluster.nodes.name_of(node)} did not keep the blob {digest} that it was sent")

    def _fetch(self, node: str, digest: Digest) -> None:
        with self._store.receive(digest) as reception:
            while reception.received < digest.size_bytes:
                head = {"call": "get piece", "digest": str(digest), "offset": reception.received, "size": PIECE_BYTES}
                answer, blobs = self._cluster.ask(node, head)
                if "is_missing" in answer:
                    raise NodeLostError(f"{self._cluster.nodes.name_of(node)} has lost the blob {digest}")
                reception.write(blobs[0])
                self._count(len(blobs[0]))
        if self._store.missing((digest,)):
            raise NodeLostError(f"{self._cluster.nodes.name_of(node)} sent wrong bytes for the blob {digest}")


def _read(stream: Any, size: int) -> bytes:
    """All bytes that are left, but at most `size`. The stream is unbuffered."""
    pieces = []
    while size and (piece := stream.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
