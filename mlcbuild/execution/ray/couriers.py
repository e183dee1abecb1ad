"""Carries blobs between the store of a build and those of nodes, in pieces, where nothing else does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import DiskStore
from mlcbuild.execution.ray.cluster import Cluster, NodeLostError

PIECE_BYTES = 8 << 20  # of which one at a time is under way for a blob: what a blob costs in memory
_THREADS = 16
_MUCH_BYTES = 256 << 20


class Couriers:
    """Threads that carry; each blob goes to a node once, however many wait for it."""

    def __init__(self, cluster: Cluster, store: DiskStore, say: Callable[[str], object]) -> None:
        self._say = say
        self._carried = 0
        self._cluster = cluster
        self._store = store
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ray-courier")
        self._lock = threading.Lock()
        self._under_way: dict[tuple[str, str, Digest], Future[None]] = {}

    def run(self, job: Callable[[], None]) -> None:
        try:
            self._threads.submit(job)
        except RuntimeError:
            pass  # It is closed, and what was under way has been told as cancelled.

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def bring(self, node: str, digest: Digest) -> None:
        """To a node, an identifier. Raises NodeLostError, NodeTroubleError, and the errors of the store."""
        self._once(("to", node, digest), lambda: self._bring(node, digest))

    def fetch(self, node: str, digest: Digest) -> None:
        """From a node. Raises NodeLostError, NodeTroubleError, and the errors of the store."""
        if self._store.missing((digest,)):
            self._once(("from", node, digest), lambda: self._fetch(node, digest))

    def _count(self, size_bytes: int) -> None:
        """A cluster should not wait long for bytes without anybody's knowing why."""
        with self._lock:
            had, self._carried = self._carried, self._carried + size_bytes
        if had < _MUCH_BYTES <= self._carried:
            self._say(
                f"more than {_MUCH_BYTES >> 20} MiB of this build went to nodes and back through Ray itself; with a "
                "remote cache that this build may write, or a shared directory, they would not (docs/ray.md)"
            )

    def _once(self, key: tuple[str, str, Digest], job: Callable[[], None]) -> None:
        with self._lock:
            waiting = self._under_way.get(key)
            if waiting is None:
                mine: Future[None] = Future()
                self._under_way[key] = mine
        if waiting is not None:
            return waiting.result()
        try:
            job()
            mine.set_result(None)
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._under_way[key]

    def _bring(self, node: str, digest: Digest) -> None:
        with self._store.open(digest) as stream:
            offset = 0
            while True:
                piece = _read(stream, PIECE_BYTES)
                is_last = offset + len(piece) >= digest.size_bytes
                head = {"call": "take", "digest": str(digest), "offset": offset, "is_last": is_last}
                answer, _ = self._cluster.ask(node, head, [piece])
                offset += len(piece)
                self._count(len(piece))
                if is_last:
                    break
        if not answer["is_there"]:
            raise NodeLostError(f"{self._cluster.roster.name_of(node)} did not keep the blob {digest} that it was sent")

    def _fetch(self, node: str, digest: Digest) -> None:
        with self._store.receive(digest) as reception:
            while reception.received < digest.size_bytes:
                head = {"call": "give", "digest": str(digest), "offset": reception.received, "size": PIECE_BYTES}
                answer, blobs = self._cluster.ask(node, head)
                if "is_missing" in answer:
                    raise NodeLostError(f"{self._cluster.roster.name_of(node)} has lost the blob {digest}")
                reception.write(blobs[0])
                self._count(len(blobs[0]))
        if self._store.missing((digest,)):
            raise NodeLostError(f"{self._cluster.roster.name_of(node)} sent wrong bytes for the blob {digest}")


def _read(stream: Any, size: int) -> bytes:
    """As many bytes as there are, `size` at most: the stream is unbuffered."""
    pieces = []
    while size and (piece := stream.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
