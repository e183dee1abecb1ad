"""Single flight: each blob is downloaded once at a time; a second thread waits for the first."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

from mlcbuild.cache.digest import Digest


class SingleFlight:
    """The blobs that are being downloaded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight: dict[Digest, threading.Event] = {}

    @contextlib.contextmanager
    def claim(self, digests: Sequence[Digest]) -> Iterator[tuple[Digest, ...]]:
        """The digests that this block has to download, because no other thread does.

        After the block the others are waited for. It never waits before, so two threads cannot wait for each other. The
        store shows whether a download succeeded.
        """
        done = threading.Event()
        with self._lock:
            mine = tuple(digest for digest in dict.fromkeys(digests) if digest not in self._in_flight)
            others = {self._in_flight[digest] for digest in digests if digest in self._in_flight}
            self._in_flight.update(dict.fromkeys(mine, done))
        try:
            yield mine
        finally:
            with self._lock:
                for digest in mine:
                    del self._in_flight[digest]
            done.set()
        for other in others:
            other.wait()
