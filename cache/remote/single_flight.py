"""One download of a blob at a time in a process: who comes second waits for the first."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

from mlcbuild.cache.digest import Digest


class SingleFlight:
    """Blobs that are on their way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight: dict[Digest, threading.Event] = {}

    @contextlib.contextmanager
    def claim(self, digests: Sequence[Digest]) -> Iterator[tuple[Digest, ...]]:
        """Those that the block is to fetch, as nobody else does. After it, and never before, the others are waited for:
        nobody waits who is waited for. Whether they came is seen in the store.
        """
        landed = threading.Event()
        with self._lock:
            mine = tuple(digest for digest in dict.fromkeys(digests) if digest not in self._in_flight)
            others = {self._in_flight[digest] for digest in digests if digest in self._in_flight}
            self._in_flight.update(dict.fromkeys(mine, landed))
        try:
            yield mine
        finally:
            with self._lock:
                for digest in mine:
                    del self._in_flight[digest]
            landed.set()
        for other in others:
            other.wait()
