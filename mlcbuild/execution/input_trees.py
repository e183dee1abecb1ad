"""Keeps the trees of large input folders, such as Python environments, so that actions share one tree.

To link and unlink 12,000 files for each action takes seconds, on a slow disk tens of seconds. So a folder of that many
files is laid out once, and the actions that read it get a link to it. It outlives the build. Only confined actions get
one: the sandbox lets them read it, and nothing else.

    <folder>/<name>/tree/...   links to blobs, and copies of executables; the name is a digest of all that is in it
    <folder>/<name>/lock       held, shared, while an executor uses the tree
"""

# ruff: noqa: PTH103, PTH115, PTH118, PTH120, PTH123, PTH211
# Paths are strings here: to make a Path costs more than the system call that needs it.

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.copying import clone_or_copy
from mlcbuild.execution.scratch import remove

LEAST_FILES = 500  # of a folder that is kept
_MODIFIED = 946_684_800  # 2000-01-01, the modification time of every copied input: the same in every run
_MOST_TREES = 12
_NEW = "new-"
_LOCK, _TREE = "lock", "tree"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TreeFile:
    """A file at `path` below the tree, and the blob's file."""

    path: str
    file: str
    is_executable: bool


class InputTrees:
    """The trees in `folder` that one executor uses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._used: dict[str, int] = {}  # name → descriptor of its lock
        self._changing = threading.Lock()

    def tree_of(self, files: Sequence[TreeFile]) -> Path:
        """The folder that has these files and no others. Raises OSError."""
        name = _name_of(files)
        place = self._folder / name
        with self._changing:
            if name not in self._used:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._used[name] = self._taken(place, files)
        return place / _TREE

    def close(self) -> None:
        with self._changing:
            for descriptor in self._used.values():
                os.close(descriptor)
            self._used.clear()

    def _taken(self, place: Path, files: Sequence[TreeFile]) -> int:
        """The lock of the tree at `place`, which is made if there is none, or not this one."""
        descriptor = _shared_lock(place)
        if descriptor is not None:
            if _is_intact(str(place / _TREE), files):
                os.utime(place)
                return descriptor
            os.close(descriptor)
            with contextlib.suppress(OSError):  # Another build may do the same.
                _set_aside(place)
        self._remove_old()
        made = Path(tempfile.mkdtemp(prefix=_NEW, dir=self._folder))
        descriptor = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            _lay_out(str(made / _TREE), files)
            made.rename(place)
        except OSError:
            os.close(descriptor)
            remove(made)
            other = _shared_lock(place)  # of a build that was faster
            if other is None:
                raise
            return other
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _remove_old(self) -> None:
        """What killed builds left, and trees beyond the most that are kept, the longest unused first."""
        found = [(each.stat().st_mtime, each) for each in self._folder.iterdir()]
        kept = sorted((each for each in found if not each[1].name.startswith(_NEW)), reverse=True)[: _MOST_TREES - 1]
        for each in sorted(set(found).difference(kept)):
            with contextlib.suppress(OSError):
                _remove_unused(each[1])


def copy_input(source: str | Path, destination: str, *, mode: int) -> None:
    """A file of its own for an action. Raises OSError."""
    with open(source, "rb", buffering=0) as stream:
        clone_or_copy(stream.fileno(), destination, mode=mode)
    os.utime(destination, (_MODIFIED, _MODIFIED))


def _lay_out(tree: str, files: Sequence[TreeFile]) -> None:
    for folder in sorted({os.path.dirname(each.path) for each in files}):
        os.makedirs(os.path.join(tree, folder), exist_ok=True)
    for each in files:
        if each.is_executable:
            copy_input(each.file, os.path.join(tree, each.path), mode=0o555)
        else:
            os.symlink(each.file, os.path.join(tree, each.path))


def _name_of(files: Sequence[TreeFile]) -> str:
    hashed = hashlib.sha256()
    for each in sorted(files):
        hashed.update(f"{each.path}\0{each.file}\0{int(each.is_executable)}\0".encode("utf-8", "surrogateescape"))
    return hashed.hexdigest()[:32]


def _shared_lock(place: Path) -> int | None:
    """The lock of a tree, held; None where there is no tree, or somebody is removing it."""
    try:
        descriptor = os.open(place / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), (place / _LOCK).stat()):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _remove_unused(place: Path) -> None:
    """Raises OSError for a tree in use, and for one that is just being made."""
    descriptor = os.open(place / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(_set_aside(place))
    finally:
        os.close(descriptor)


def _set_aside(place: Path) -> Path:
    """Its name is free from now on."""
    return place.rename(tempfile.mkdtemp(prefix=_NEW, dir=place.parent))


def _is_intact(tree: str, files: Sequence[TreeFile]) -> bool:
    """Whether every file is what it was made as, and nothing else is there. Takes a tenth of making it."""
    expected = {each.path: each for each in files}
    left = len(expected)
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(os.path.join(tree, folder)) as entries:
                inside = list(entries)
        except OSError:
            return False
        for entry in inside:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            elif (known := expected.get(path)) is None or not _is_made_of(entry, known):
                return False
            else:
                left -= 1
    return left == 0


def _is_made_of(entry: os.DirEntry[str], known: TreeFile) -> bool:
    if entry.is_symlink():
        return not known.is_executable and os.readlink(entry.path) == known.file
    if not known.is_executable:
        return False
    copied, blob = entry.stat(follow_symlinks=False), os.stat(known.file)  # noqa: PTH116
    return (stat.S_ISREG(copied.st_mode), copied.st_size, copied.st_mtime) == (True, blob.st_size, _MODIFIED)
