"""A cache of 32-byte values about files, valid while a file's stat stays the same. It is one file on disk.

The file holds a header line, 16 bytes of XXH3-128 over the rest, and the rest: a count, one fixed-size record per file,
and the zero-terminated paths. A file that is damaged in any way counts as empty.
"""

from __future__ import annotations

import contextlib
import operator
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from mlcbuild.cache import integrity
from mlcbuild.cache.atomic import write_atomically
from mlcbuild.regular_files import read_regular

# The clock of a file system may tick only every two seconds (FAT). A second write in the same tick does not change the
# stat, so a stat that is younger than this is "racy", as Git calls it.
RACY_NANOSECONDS = 2_000_000_000

_RECORD = struct.Struct("<QQQqqI32s")
_COUNT = struct.Struct("<Q")

Identity = tuple[int, int, int, int, int, int]


# What must be equal for a file to count as unchanged.
identity_of: Callable[[os.stat_result], Identity] = operator.attrgetter(
    "st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_mode"
)


def is_racy(status: os.stat_result, now_nanoseconds: int) -> bool:
    """Whether a write from now on might not change the stat. True for times in the future."""
    return max(status.st_mtime_ns, status.st_ctime_ns) >= now_nanoseconds - RACY_NANOSECONDS


class StatCache:
    """Maps paths to (identity, 32 bytes). `kind` says what the bytes mean; a file of another kind is not read.

    With `path = None` nothing is written to disk.
    """

    def __init__(self, path: Path | None, *, kind: str) -> None:
        self._path = path
        self._header = f"mlcbuild stat cache 1 {kind}\n".encode()
        self._entries = self._load()
        self._changed = False

    def get(self, path: str, status: os.stat_result) -> bytes | None:
        """The value for a file whose stat is unchanged, else None."""
        entry = self._entries.get(path)
        return entry[6] if entry is not None and entry[:6] == identity_of(status) else None

    def identity(self, path: str) -> Identity | None:
        """The cached stat of a file."""
        entry = self._entries.get(path)
        return entry[:6] if entry is not None else None

    def set(self, path: str, status: os.stat_result, value: bytes) -> None:
        """Store 32 bytes. The caller has checked that the stat is not racy, or knows that it does not matter."""
        self._entries[path] = (*identity_of(status), value)
        self._changed = True

    def forget(self, path: str) -> None:
        if self._entries.pop(path, None) is not None:
            self._changed = True

    def paths(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def invalidate(self) -> None:
        """Delete the file until the next `save`, so that nothing is believed if this process is killed in between."""
        self._changed = True
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def save(self) -> None:
        """Write the file if something changed. If the disk cannot take it, the next build only takes longer."""
        if self._path is None or not self._changed:
            return
        with contextlib.suppress(OSError):
            write_atomically(self._path, self._encode())
            self._changed = False

    def _encode(self) -> bytes:
        entries = self._entries.copy()
        body = b"".join(
            [
                _COUNT.pack(len(entries)),
                *(_RECORD.pack(*entry) for entry in entries.values()),
                *(path.encode("utf-8", "surrogateescape") + b"\0" for path in entries),
            ]
        )
        return self._header + integrity.checksum_of_bytes(body) + body

    def _load(self) -> dict[str, tuple[int, int, int, int, int, int, bytes]]:
        if self._path is None:
            return {}
        try:
            data = read_regular(self._path)
        except OSError:
            return {}
        start = len(self._header) + integrity.CHECKSUM_BYTES
        body = data[start:]
        checksum = data[len(self._header) : start]
        if not data.startswith(self._header) or integrity.checksum_of_bytes(body) != checksum:
            return {}
        (count,) = _COUNT.unpack_from(body)
        names = _COUNT.size + count * _RECORD.size
        records = _RECORD.iter_unpack(body[_COUNT.size : names])
        paths = body[names:].decode("utf-8", "surrogateescape").split("\0")
        return dict(zip(paths, records, strict=False))


def now_nanoseconds() -> int:
    """The wall clock, which file systems use for the times of files."""
    return time.time_ns()
