"""Records in a remote cache, by what every remote cache has: blobs, and results by key.

A platform's segments are results with the keys of the numbers 0, 1, 2, …: a log that only grows. Who adds one sends it
under the first free number, looks whose it became, and goes on with the next number if it was another's: a server that
keeps the first result of a key loses none. What a server did lose is sent again by the next who has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult, OutputFile
from mlcbuild.cache.store import LocalBlobStore
from mlcbuild.tuning.record import Record, merged
from mlcbuild.tuning.store import Segment

_FILE = "records.jsonl"
_HOLES = 4  # so many numbers without a segment are the end


class Remote(Protocol):
    """What of a remote cache a log needs (`cache.remote.remote_store.RemoteStore`)."""

    def find(self, key: Digest, store: LocalBlobStore) -> ActionResult | None: ...

    def fetch(self, digests: Sequence[Digest], store: LocalBlobStore) -> tuple[Digest, ...]: ...

    def send_and_wait(
        self, key: Digest, result: ActionResult, outputs: Sequence[Digest], store: LocalBlobStore
    ) -> None: ...


@dataclass(frozen=True, kw_only=True)
class RemoteLog:
    """The records of one platform in a remote cache. `function` digests bytes as its store does."""

    remote: Remote
    store: LocalBlobStore
    of_bytes: Callable[[bytes], Digest]
    platform: str

    def read(self) -> tuple[Record, ...]:
        """The union of all segments that are whole."""
        return self._read()[0]

    def add(self, records: Iterable[Record]) -> int:
        """Send the records that the log has not, and answer how many the server took. Raises CacheError."""
        known, free = self._read()
        new = merged(set(records) - set(known))
        if not new:
            return 0
        digest = self.store.put_bytes(Segment.of(new).data)
        result = ActionResult(output_files=(OutputFile(path=_FILE, digest=digest),))
        unanswered = 0  # A number may be taken by what cannot be read; if several are, nothing may be written.
        while unanswered < _HOLES:
            self.remote.send_and_wait(self._key(free), result, [digest], self.store)
            found = self._segment(free)
            if found == digest:
                return len(new)
            unanswered += found is None
            free += 1
        return 0

    def _read(self) -> tuple[tuple[Record, ...], int]:
        """All records, and the first free number. A few numbers whose segments are gone hide no others."""
        found: set[Record] = set()
        number, missing = 0, list[int]()
        while len(missing) < _HOLES:
            digest = self._segment(number)
            if digest is None:
                missing.append(number)
            elif not self.remote.fetch([digest], self.store):
                with contextlib.suppress(ValueError):
                    records = Segment(data=self.store.read(digest)).records()
                    found.update(record for record in records if record.platform == self.platform)
            number += 1
        return merged(found), missing[0]

    def _segment(self, number: int) -> Digest | None:
        result = self.remote.find(self._key(number), self.store)
        return next((file.digest for file in result.output_files if file.path == _FILE), None) if result else None

    def _key(self, number: int) -> Digest:
        return self.of_bytes(f"mlcbuild records of kernels 1\n{self.platform}\n{number}".encode())
