"""What a remote cache did in one build, in numbers."""

from __future__ import annotations

import collections
import enum
import threading
from dataclasses import dataclass
from typing import Any, Self


class Miss(enum.Enum):
    """Why a look-up found nothing; the value is what people are told."""

    ABSENT = "absent"
    INVALID = "invalid"  # damaged, of a failed action, or with a path that leaves the output tree
    UNSIGNED = "unsigned"  # or signed by nobody who is trusted
    INCOMPLETE = "incomplete"  # blobs that it names have gone
    REFUSED = "refused"  # credentials, permissions, an address that nobody has
    TIMED_OUT = "timed out"  # no answer, or none that could be used, however often it was asked
    OFF = "off"  # not asked any more


@dataclass(frozen=True, kw_only=True)
class Counters:
    """Of all servers of one remote cache together. A look-up is one hit or one miss.

    A miss has the reason of the first server that gave another one than ABSENT. Bytes are those of blobs and results;
    those of a large blob count while it moves, none twice, and are taken back where nothing comes of it.
    """

    hits: int = 0
    misses: tuple[tuple[Miss, int], ...] = tuple((reason, 0) for reason in Miss)  # every reason, in declaration order
    blobs_downloaded: int = 0
    blobs_uploaded: int = 0
    bytes_downloaded: int = 0
    bytes_uploaded: int = 0
    results_uploaded: int = 0
    uploads_dropped: int = 0  # results that were not sent, whatever the reason
    blobs_wrong: int = 0  # downloads whose bytes were not the blob, every try counted
    blobs_lost: int = 0  # asked for, and nowhere
    retries: int = 0
    failures: int = 0  # operations that failed, with all their retries

    @property
    def missed(self) -> int:
        return sum(count for _, count in self.misses)


class Tally:
    """Counters that several threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()
        self._misses: collections.Counter[Miss] = collections.Counter()

    def add(self, **counts: int) -> None:
        """By the names of Counters' fields."""
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count

    def missed(self, reason: Miss) -> None:
        with self._lock:
            self._misses[reason] += 1

    def counters(self) -> Counters:
        with self._lock:
            counts: dict[str, Any] = dict(self._counts)
            return Counters(misses=tuple((reason, self._misses[reason]) for reason in Miss), **counts)


class TransferProgress:
    """Counts the bytes of one blob while they move, by the name of a field of Counters: each once, however often they
    are sent. As a context manager it takes them back at its end, unless the blob is `kept` by then.
    """

    def __init__(self, tally: Tally, name: str, size_bytes: int) -> None:
        self._tally = tally
        self._name = name
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._position = 0
        self._counted = 0

    def restart(self) -> None:
        """The blob is sent once more."""
        with self._lock:
            self._position = 0

    def moved(self, count: int) -> None:
        with self._lock:
            self._position += count
            self._count(max(self._counted, min(self._position, self._size_bytes)))

    def complete(self) -> None:
        """The whole blob is where it was to go."""
        with self._lock:
            self._count(self._size_bytes)
            self._counted = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count(0)

    def _count(self, bytes_so_far: int) -> None:
        if bytes_so_far != self._counted:
            self._tally.add(**{self._name: bytes_so_far - self._counted})
            self._counted = bytes_so_far
