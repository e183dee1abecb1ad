"""Which blobs nodes have put into the remote cache in this build, and which of these are in doubt."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from mlcbuild.cache.digest import Digest


class RemoteBlobs:
    """For any thread. A blob is in doubt after it was sent and was not found there; nodes then keep it themselves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: set[Digest] = set()
        self._sent_by: dict[str, tuple[Digest, ...]] = {}  # by the action that made them
        self._doubted: set[Digest] = set()

    def sent(self, identifier: str, digests: Sequence[Digest]) -> None:
        """A node has put what this action made there."""
        with self._lock:
            self._sent.update(digests)
            self._sent_by[identifier] = tuple(digests)

    def those_sent(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        with self._lock:
            return frozenset(self._sent.intersection(digests))

    def doubt(self, digests: Sequence[Digest]) -> None:
        with self._lock:
            self._sent.difference_update(digests)
            self._doubted.update(digests)

    def doubt_those_of(self, identifier: str) -> None:
        """What the action made has gone since, as it runs again. Nodes remember what they have sent, and must not."""
        with self._lock:
            digests = self._sent_by.pop(identifier, ())
        self.doubt(digests)

    def doubted(self) -> tuple[Digest, ...]:
        with self._lock:
            return tuple(sorted(self._doubted))
