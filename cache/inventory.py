"""What lies in a store: every blob and result with its size and age, what names what, and what does not belong there.

A file counts as whole blocks of 4 KiB, as most file systems keep it, so that many small ones are not taken for little.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.cache import integrity
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import LAYOUT_VERSION
from mlcbuild.cache.references import ReferenceReader, References

_BLOCK_BYTES = 4096
_READ_BYTES = 1 << 16
_FOLDER = re.compile(r"[0-9a-f]{2}")
_NAME = re.compile(r"[0-9a-f]{64}")

Progress = Callable[[str, int, int], object]
"""Told what is done now, how much of it is done, and of how much (0: not known)."""


def no_progress(_what: str, _done: int, _total: int) -> None:
    """For who does not want to know."""


@dataclass(slots=True, kw_only=True)
class Blob:
    """A file under `cas/`. `used` is when its inode changed or it was read last (nanoseconds of the wall clock)."""

    hash: str
    size_bytes: int
    used: int
    references: int = 0  # results that name it

    @property
    def stored_bytes(self) -> int:
        return stored_bytes(self.size_bytes)


@dataclass(slots=True, kw_only=True)
class Result:
    """A file under `ac/`. `used` is when a build used it last, `references` None where it is damaged."""

    hash: str
    size_bytes: int
    used: int
    inode: int
    references: References | None = None

    @property
    def stored_bytes(self) -> int:
        return stored_bytes(self.size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A file that is neither blob nor result: set aside, on its way in, or foreign. Nobody else's is removed."""

    path: str
    size_bytes: int
    changed: int

    @property
    def stored_bytes(self) -> int:
        return stored_bytes(self.size_bytes)


@dataclass(slots=True, kw_only=True)
class Inventory:
    """The store of one digest function; `base` is its folder."""

    base: Path
    function: DigestFunction
    blobs: dict[str, Blob] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)
    set_aside: list[Leftover] = field(default_factory=list)
    temporary: list[Leftover] = field(default_factory=list)
    foreign: list[Leftover] = field(default_factory=list)

    @property
    def stored_bytes(self) -> int:
        """Of all that is ours."""
        files = (self.blobs.values(), self.results.values(), self.set_aside, self.temporary)
        return sum(item.stored_bytes for group in files for item in group)

    def unnamed(self) -> Iterator[Blob]:
        """The blobs that no result names: sources of a build, and what evicted results have left."""
        return (blob for blob in self.blobs.values() if not blob.references)

    def lacking(self, result: Result) -> list[str]:
        """The blobs that a result needs and that were not seen; one that a remote knows may never have been here."""
        needed = result.references.needed() if result.references else ()
        return sorted(digest_hash for digest_hash in needed if digest_hash not in self.blobs)


def stored_bytes(size_bytes: int) -> int:
    """What a file takes on the disk."""
    return -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES


def bases(root: Path) -> list[tuple[Path, DigestFunction]]:
    """The folder of each digest function that has a store below `root`."""
    found = [(root / LAYOUT_VERSION / function.value, function) for function in DigestFunction]
    return [(base, function) for base, function in found if base.is_dir()]


def take_inventory(base: Path, function: DigestFunction, progress: Progress = no_progress) -> Inventory:
    """Look at every file of a store, and read its results. Whatever vanishes meanwhile is left out.

    Blobs are listed before results are read: a result may come with blobs that were not listed yet.
    Raises OSError where the store's folders, results, or blobs that say what results name cannot be read.
    """
    found = Inventory(base=base, function=function)
    empty = function.of_bytes(b"").hash
    for name, status in _files(f"{base}/cas", found.foreign):
        if name != empty:
            found.blobs[name] = Blob(
                hash=name, size_bytes=status.st_size, used=max(status.st_ctime_ns, status.st_atime_ns)
            )
            progress("listing blobs", len(found.blobs), 0)
    for name, status in _files(f"{base}/ac", found.foreign):
        found.results[name] = Result(hash=name, size_bytes=status.st_size, used=status.st_mtime_ns, inode=status.st_ino)
    found.set_aside += _leftovers(f"{base}/corrupt")
    found.temporary += _leftovers(f"{base}/tmp")
    reader = ReferenceReader(lambda digest_hash: _content(f"{base}/cas/{digest_hash[:2]}/{digest_hash}"))
    for count, result in enumerate(found.results.values()):
        progress("reading results", count, len(found.results))
        result.references = read_references(base, result.hash, reader)
        for digest_hash in result.references.all() if result.references else ():
            blob = found.blobs.get(digest_hash)
            if blob is not None:
                blob.references += 1
    return found


def read_references(base: Path, key_hash: str, reader: ReferenceReader) -> References | None:
    """None for a result that is damaged or has gone. Raises OSError for one that cannot be read for another reason."""
    data = _content(f"{base}/ac/{key_hash[:2]}/{key_hash}") or b""
    body, checksum = data[: -integrity.CHECKSUM_BYTES], data[-integrity.CHECKSUM_BYTES :]
    if len(checksum) != integrity.CHECKSUM_BYTES or integrity.checksum_of_bytes(body) != checksum:
        return None
    try:
        return reader.of_result(key_hash, body)
    except ValueError:
        return None


def _files(top: str, foreign: list[Leftover]) -> Iterator[tuple[str, os.stat_result]]:
    """Every file where blobs or results lie; those whose names are not hashes in their place go to `foreign`."""
    for folder in _entries(top):
        if not folder.is_dir(follow_symlinks=False):
            foreign += _leftover(folder)
            continue
        is_fan = _FOLDER.fullmatch(folder.name) is not None
        for entry in _entries(folder.path):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            name = entry.name
            if is_fan and name[:2] == folder.name and _NAME.fullmatch(name) and stat.S_ISREG(status.st_mode):
                yield name, status
            else:
                foreign += _leftover(entry)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _leftovers(folder: str) -> list[Leftover]:
    return [leftover for entry in _entries(folder) for leftover in _leftover(entry)]


def _leftover(entry: os.DirEntry[str]) -> list[Leftover]:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return []
    return [Leftover(path=entry.path, size_bytes=status.st_size, changed=status.st_ctime_ns)]


def _content(path: str) -> bytes | None:
    """None for what is not there, or is lost on the disk.

    Raises OSError where it may be there and well: to go on would be to take its blobs for unnamed.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(descriptor, _READ_BYTES)
            if len(data) < _READ_BYTES:
                return data
            pieces = [data]
            while piece := os.read(descriptor, _READ_BYTES):
                pieces.append(piece)
            return b"".join(pieces)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EISDIR, errno.EIO):
            return None
        raise
