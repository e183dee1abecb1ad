"""Counters of what a remote cache did in one build."""

from __future__ import annotations

import collections
import enum
import threading
from dataclasses import dataclass
from typing import Any, Self


class MissReason(enum.Enum):
    """Why a lookup found nothing. The value is its name in messages."""

    ABSENT = "absent"
    INVALID = "invalid"  # damaged, of a failed action, or with a path outside its output tree
    UNSIGNED = "unsigned"  # or not signed by a trusted key
    INCOMPLETE = "incomplete"  # blobs that it names are missing
    DENIED = "denied"  # wrong credentials, missing permissions, an unknown host
    FAILED = "failed"  # refused or broken connections, or answers that are errors, after all retries
    TIMED_OUT = "timed out"  # no answer in time, after all retries, or none until the end of the build
    OFF = "off"  # the server was not asked, because it had failed too often


@dataclass(frozen=True, kw_only=True)
class Counters:
    """The sums over all servers of one remote cache. A lookup is one hit or one miss.

    The reason of a miss is the first one that is not ABSENT. Bytes are those of blobs and results. The bytes of a large
    blob are counted while they move, each once, and subtracted again if the transfer fails.
    """

    hits: int = 0
    misses: tuple[tuple[MissReason, int], ...] = tuple(
        (reason, 0) for reason in MissReason
    )  # all reasons, in the order of MissReason
    blobs_downloaded: int = 0
    blobs_uploaded: int = 0
    bytes_downloaded: int = 0
    bytes_uploaded: int = 0
    results_uploaded: int = 0
    uploads_dropped: int = 0  # results that were not sent, for any reason
    blobs_wrong: int = 0  # downloads with wrong bytes, each attempt counted
    blobs_lost: int = 0  # requested, and on no server
    retries: int = 0
    failures: int = 0  # operations that failed after all retries

    @property
    def missed(self) -> int:
        return sum(count for _, count in self.misses)


class Tally:
    """Counters that several threads increment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()
        self._misses: collections.Counter[MissReason] = collections.Counter()

    def add(self, **counts: int) -> None:
        """Increment counters, by the names of Counters' fields."""
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count

    def missed(self, reason: MissReason) -> None:
        with self._lock:
            self._misses[reason] += 1

    def counters(self) -> Counters:
        with self._lock:
            counts: dict[str, Any] = dict(self._counts)
            return Counters(misses=tuple((reason, self._misses[reason]) for reason in MissReason), **counts)


class TransferProgress:
    """Counts the bytes of one blob while they move, in the field `name` of Counters. Bytes sent again count once.

    As a context manager it subtracts the bytes at the end, unless `complete` was called.
    """

    def __init__(self, tally: Tally, name: str, size_bytes: int) -> None:
        self._tally = tally
        self._name = name
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._position = 0
        self._counted = 0

    def restart(self) -> None:
        """The transfer begins again."""
        with self._lock:
            self._position = 0

    def moved(self, count: int) -> None:
        with self._lock:
            self._position += count
            self._count(max(self._counted, min(self._position, self._size_bytes)))

    def complete(self) -> None:
        """The whole blob has arrived."""
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
