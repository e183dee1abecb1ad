"""What is known about files, remembered by their stat: one compact file, read at once and written at once.

The file is `<header line>`, 16 bytes of XXH3-128 over the rest, and the rest: a count, a fixed record a file,
and the paths, ended by zero bytes. Anything wrong with it means that nothing is remembered.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from pathlib import Path

from mlcbuild.cache import integrity
from mlcbuild.cache.atomic import write_atomically

# Clocks of file systems tick as slowly as every two seconds (FAT), and a write in the tick of the last one
# leaves no trace in the stat.
SETTLING_NANOSECONDS = 2_000_000_000

_RECORD = struct.Struct("<QQQqqI32s")
_COUNT = struct.Struct("<Q")

Identity = tuple[int, int, int, int, int, int]


def identity_of(status: os.stat_result) -> Identity:
    """What must be equal for a file to count as untouched: device, inode, size, mtime, ctime, mode."""
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_mode,
    )


def is_settled(status: os.stat_result, now_nanoseconds: int) -> bool:
    """Whether a write from now on is sure to show in the stat; False too for times in the future."""
    return max(status.st_mtime_ns, status.st_ctime_ns) < now_nanoseconds - SETTLING_NANOSECONDS


class StatMemory:
    """Path → (identity, 32 bytes). `kind` names what the bytes mean; a file of another kind is not read.

    `path = None` remembers for the life of the object alone.
    """

    def __init__(self, path: Path | None, *, kind: str) -> None:
        self._path = path
        self._header = f"mlcbuild stat memory 1 {kind}\n".encode()
        self._entries = self._load()
        self._changed = False

    def get(self, path: str, status: os.stat_result) -> bytes | None:
        """What is remembered of an untouched file, else None."""
        entry = self._entries.get(path)
        return entry[6] if entry is not None and entry[:6] == identity_of(status) else None

    def identity(self, path: str) -> Identity | None:
        """The stat that is remembered of a file."""
        entry = self._entries.get(path)
        return entry[:6] if entry is not None else None

    def set(self, path: str, status: os.stat_result, value: bytes) -> None:
        """Remember 32 bytes. The caller knows that the stat is not young, or that youth does not matter."""
        self._entries[path] = (*identity_of(status), value)
        self._changed = True

    def forget(self, path: str) -> None:
        if self._entries.pop(path, None) is not None:
            self._changed = True

    def paths(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def withdraw(self) -> None:
        """Remove the file until the next `save`: whoever is killed in between is not believed."""
        self._changed = True
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def save(self) -> None:
        """Write the file where something changed.

        A disk that cannot take it costs time later, nothing else.
        """
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
            data = self._path.read_bytes()
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
    """The wall clock, which is what file systems stamp files by."""
    return time.time_ns()
