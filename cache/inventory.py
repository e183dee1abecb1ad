"""What a store contains: every blob and result with its size and age, which result names which blob, and other files.

Sizes are rounded up to blocks of 4 KiB, as on most file systems, because many small files take much space.
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
from mlcbuild.cache.quarantine import kind_of
from mlcbuild.cache.references import ReferenceReader, References

_BLOCK_BYTES = 4096
_READ_BYTES = 1 << 16
_FOLDER = re.compile(r"[0-9a-f]{2}")
_NAME = re.compile(r"[0-9a-f]{64}")

Progress = Callable[[str, int, int], object]
"""Called with what is being done, how much of it is done, and the total (0: not known)."""


def progress_in(progress: Progress, function: DigestFunction, stores: int) -> Progress:
    """The progress in one of several stores, so that the same work in the next one is not taken for a step back."""
    return progress if stores == 1 else lambda what, done, total: progress(f"{what} ({function.value})", done, total)


def no_progress(_what: str, _done: int, _total: int) -> None:
    """Ignores progress."""


@dataclass(slots=True, kw_only=True)
class Blob:
    """A file under `cas/`. `used` is the later of its change and access times (nanoseconds of the wall clock)."""

    hash: str
    size_bytes: int
    used: int
    references: int = 0  # results that name it

    @property
    def stored_bytes(self) -> int:
        return stored_bytes(self.size_bytes)


@dataclass(slots=True, kw_only=True)
class Result:
    """A file under `ac/`. `used` is when a build used it last. `references` is None if it is damaged."""

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
    """A file that is neither blob nor result: quarantined, temporary, or foreign. Foreign files are never removed."""

    path: str
    size_bytes: int
    changed: int

    @property
    def stored_bytes(self) -> int:
        return stored_bytes(self.size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Misplaced:
    """What is no regular file and lies where a blob or a result belongs, so that it cannot be read. `kind` is `blob` or
    `result`, `what` is what it is, for people.
    """

    kind: str
    path: str
    what: str


@dataclass(slots=True, kw_only=True)
class Inventory:
    """The store of one digest function; `base` is its folder."""

    base: Path
    function: DigestFunction
    blobs: dict[str, Blob] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)
    quarantined: list[Leftover] = field(default_factory=list)
    temporary: list[Leftover] = field(default_factory=list)
    foreign: list[Leftover] = field(default_factory=list)
    misplaced: list[Misplaced] = field(default_factory=list)

    @property
    def stored_bytes(self) -> int:
        """The size of everything but foreign files."""
        files = (self.blobs.values(), self.results.values(), self.quarantined, self.temporary)
        return sum(item.stored_bytes for group in files for item in group)

    def unnamed(self) -> Iterator[Blob]:
        """The blobs that no result names, such as source files, and blobs of evicted results."""
        return (blob for blob in self.blobs.values() if not blob.references)

    def lacking(self, result: Result) -> list[str]:
        """The blobs that a result needs and that are not in the store. They may be in a remote cache alone."""
        needed = result.references.needed() if result.references else ()
        return sorted(digest_hash for digest_hash in needed if digest_hash not in self.blobs)


def stored_bytes(size_bytes: int) -> int:
    """The space that a file takes on the disk."""
    return -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES


def bases(root: Path) -> list[tuple[Path, DigestFunction]]:
    """The folder of each digest function that has a store below `root`."""
    found = [(root / LAYOUT_VERSION / function.value, function) for function in DigestFunction]
    return [(base, function) for base, function in found if base.is_dir()]


def take_inventory(base: Path, function: DigestFunction, progress: Progress = no_progress) -> Inventory:
    """List every file of a store and read its results. Files that vanish meanwhile are left out.

    Blobs are listed before results are read, so a new result may name blobs that are not in the list. Raises OSError if
    folders, results, or the blobs that say what results name cannot be read.
    """
    found = Inventory(base=base, function=function)
    empty = function.of_bytes(b"").hash
    for name, status in _files(f"{base}/cas", "blob", found):
        if name != empty:
            found.blobs[name] = Blob(
                hash=name, size_bytes=status.st_size, used=max(status.st_ctime_ns, status.st_atime_ns)
            )
            progress("listing blobs", len(found.blobs), 0)
    for name, status in _files(f"{base}/ac", "result", found):
        found.results[name] = Result(hash=name, size_bytes=status.st_size, used=status.st_mtime_ns, inode=status.st_ino)
    found.quarantined += _leftovers(f"{base}/corrupt")
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
    """None for a result that is damaged or gone. Raises OSError if it cannot be read for another reason."""
    data = _content(f"{base}/ac/{key_hash[:2]}/{key_hash}") or b""
    body, checksum = data[: -integrity.CHECKSUM_BYTES], data[-integrity.CHECKSUM_BYTES :]
    if len(checksum) != integrity.CHECKSUM_BYTES or integrity.checksum_of_bytes(body) != checksum:
        return None
    try:
        return reader.of_result(key_hash, body)
    except ValueError:
        return None


def _files(top: str, kind: str, found: Inventory) -> Iterator[tuple[str, os.stat_result]]:
    """Every file named by a hash, in the folder for that hash. All others are added to `foreign` or `misplaced`."""
    for folder in _entries(top):
        if not folder.is_dir(follow_symlinks=False):
            if _FOLDER.fullmatch(folder.name) and not folder.is_dir():
                found.misplaced += _misplaced(kind, folder)
            else:
                found.foreign += _leftover(folder)
            continue
        is_fan = _FOLDER.fullmatch(folder.name) is not None
        for entry in _entries(folder.path):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            name = entry.name
            if not (is_fan and name[:2] == folder.name and _NAME.fullmatch(name)):
                found.foreign += _leftover(entry)
            elif stat.S_ISREG(status.st_mode):
                yield name, status
            elif entry.is_file():  # a link to a file, which can be read
                found.foreign += _leftover(entry)
            else:
                found.misplaced += _misplaced(kind, entry)


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


def _misplaced(kind: str, entry: os.DirEntry[str]) -> list[Misplaced]:
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except OSError:
        return []
    return [Misplaced(kind=kind, path=entry.path, what=kind_of(mode))]


def _content(path: str) -> bytes | None:
    """The content of a file. None if there is none, or the disk has lost it.

    Raises OSError if the file may be intact: going on would mean to treat the blobs that it names as unnamed.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # never waits for a pipe's writer
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
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EIO):
            return None
        raise
