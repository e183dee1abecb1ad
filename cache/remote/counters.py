"""What a remote cache did in one build, in numbers."""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass, replace


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

    A miss has the reason of the first server that gave another one than ABSENT. Bytes are those of blobs and results.
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
        self._counters = Counters()

    def add(self, **counts: int) -> None:
        with self._lock:
            sums = {name: getattr(self._counters, name) + count for name, count in counts.items()}
            self._counters = replace(self._counters, **sums)

    def missed(self, reason: Miss) -> None:
        with self._lock:
            misses = tuple((each, count + (each is reason)) for each, count in self._counters.misses)
            self._counters = replace(self._counters, misses=misses)

    def counters(self) -> Counters:
        with self._lock:
            return self._counters
