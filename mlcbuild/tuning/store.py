"""Records on disk, beside the disk cache's blobs and results and out of reach of its eviction.

They lie in segments, `tuning/v1/PLATFORM/SHA256.jsonl`: the records of one measurement of a kernel, written once under
the digest of their bytes. Two who write never touch the same file unless they write the same, so nothing is lost; and a
file whose bytes are not those of its name, such as half of one, counts as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.atomic import write_atomically
from mlcbuild.cache.disk import default_root, disk_error
from mlcbuild.regular_files import read_regular
from mlcbuild.tuning.record import Record, merged
from mlcbuild.tuning.shipped import shipped_records

_LAYOUT = "tuning/v1"
_SEGMENT = re.compile(r"[0-9a-f]{64}\.jsonl")


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Records that were written together, as bytes: lines of JSON. `name` is their SHA-256."""

    data: bytes

    @property
    def name(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @staticmethod
    def of(records: Iterable[Record]) -> Segment:
        return Segment(data="".join(record.line() for record in merged(records)).encode())

    def records(self) -> tuple[Record, ...]:
        """Raises ValueError for bytes that are no records."""
        try:
            return tuple(Record.read(line) for line in self.data.decode().splitlines())
        except UnicodeDecodeError as error:
            raise ValueError("records that are no text") from error


@dataclass(frozen=True, kw_only=True)
class RecordStore:
    """The records below `root`, a disk cache's folder."""

    root: Path

    @staticmethod
    def of(disk_cache: Path | None) -> RecordStore:
        """That of the disk cache which an option names, or of the user's."""
        return RecordStore(root=disk_cache.absolute() if disk_cache else default_root())

    def folder(self, platform: str) -> Path:
        """Where a platform's segments lie, whether there are any or not."""
        return self.root / _LAYOUT / platform

    def platforms(self) -> tuple[str, ...]:
        """Those of which there are records, sorted."""
        try:
            return tuple(sorted(path.name for path in (self.root / _LAYOUT).iterdir() if path.is_dir()))
        except OSError:
            return ()

    def segments(self, platform: str) -> tuple[Segment, ...]:
        """Those that are whole, sorted by name."""
        found = []
        with contextlib.suppress(OSError):
            for path in sorted(self.folder(platform).iterdir()):
                if _SEGMENT.fullmatch(path.name):
                    with contextlib.suppress(OSError):
                        segment = Segment(data=read_regular(path))
                        if segment.name == path.stem:
                            found.append(segment)
        return tuple(found)

    def records(self, platform: str) -> tuple[Record, ...]:
        """All records of a platform, and those that mlcbuild brings along, sorted. Those of another version of mlcbuild
        are left out."""
        found: set[Record] = set(shipped_records(platform))
        for segment in self.segments(platform):
            with contextlib.suppress(ValueError):
                found.update(segment.records())
        return merged(record for record in found if record.platform == platform)

    def add(self, records: Iterable[Record]) -> int:
        """Keep records that are not there yet, and answer how many. Raises CacheError where the disk does not take
        them."""
        by_platform: dict[str, list[Record]] = {}
        for record in records:
            by_platform.setdefault(record.platform, []).append(record)
        added = 0
        for platform, given in sorted(by_platform.items()):
            known = set(self.records(platform))
            new = [record for record in merged(given) if record not in known]
            if new:
                self.add_segment(platform, Segment.of(new))
                added += len(new)
        return added

    def add_segment(self, platform: str, segment: Segment) -> None:
        """Keep a segment. Raises CacheError where the disk does not take it."""
        path = self.folder(platform) / f"{segment.name}.jsonl"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, segment.data)
        except OSError as error:
            raise disk_error(error, path, "writing") from error
