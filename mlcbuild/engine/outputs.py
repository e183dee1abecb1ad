"""Places the outputs of targets in their directories, and removes what earlier builds left there.

Outputs are read-only (0444, or 0555 where executable), as Bazel's are. They are copies of cached content, and a user
who wants to edit one should notice. They share blocks with the store where the file system supports that; else they are
copies. Blobs from 8 MiB on are hard links where owner and mode allow it, because weights are gigabytes. The
modification time of a copy is set three seconds back. So an edit always changes it, even within the same tick of the
clock.
"""

# ruff: noqa: PTH102, PTH103, PTH105, PTH108, PTH112
# Paths are strings here, because making a Path costs more than the system call that needs it.

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.copying import clone_or_copy
from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import disk_error
from mlcbuild.cache.stat_cache import RACY_NANOSECONDS, Identity, StatCache, now_nanoseconds
from mlcbuild.cache.store import BlobMissingError, LocalBlobStore
from mlcbuild.engine.executor import FileEntry
from mlcbuild.errors import LocalEnvironmentError

HARD_LINK_FROM_BYTES = 8 << 20
_SET_BACK_NANOSECONDS = RACY_NANOSECONDS + 1_000_000_000
_TEMPORARY = ".mlcbuild-"
_CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedFiles:
    """The result of placing outputs. Paths are relative to the target's directory, and sorted.

    Where `missing` names blobs that the store does not have, nothing was changed. Make them again, then place again.
    """

    written: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    missing: tuple[Digest, ...] = ()


class OutputPlacer:
    """Places outputs below a workspace. `state_path` remembers them, so that a check costs one stat for each."""

    def __init__(self, workspace: Path, store: LocalBlobStore, state_path: Path | None = None) -> None:
        self._workspace = workspace
        self._store = store
        self._stats = StatCache(state_path, kind=f"outputs {store.function.value}")
        # The state on disk is removed at the first change, and written again by `save`. After a build that was killed
        # in between nothing is remembered, and all outputs are read and checked again.
        self._is_withdrawn = False
        self._placed: dict[str, set[str]] = {}
        for path in self._stats.paths():
            directory, _, name = path.partition("//")
            self._placed.setdefault(directory, set()).add(name)

    def is_current(self, directory: str, files: tuple[FileEntry, ...]) -> bool:
        """Whether exactly these files lie under `directory`, untouched. Costs one stat for each, and reads nothing."""
        if self._placed.get(directory, set()) != {entry.path for entry in files}:
            return False
        return all(self._is_untouched(directory, entry) for entry in files)

    def place(self, directory: str, files: tuple[FileEntry, ...]) -> PlacedFiles:
        """Put these files into `directory` (relative to the workspace), and remove what earlier builds put there.

        All files are prepared before the first is renamed into place. Raises LocalEnvironmentError where the disk is
        full, CacheError where the directory cannot be written, and ValueError for paths that leave it.
        """
        top = f"{self._workspace}/{directory}"
        stale = self._stale(top, directory, {entry.path for entry in files})
        kept: list[FileEntry] = []
        wanted: list[FileEntry] = []
        for entry in files:
            _check_path(entry.path)
            (kept if self._is_right(top, directory, entry) else wanted).append(entry)
        prepared: list[tuple[FileEntry, str]] = []
        try:
            missing = self._prepare(top, wanted, prepared)
            if missing:
                return PlacedFiles(missing=missing)
            if (stale or prepared) and not self._is_withdrawn:
                self._stats.invalidate()
                self._is_withdrawn = True
            for path in stale:
                self._remove(Path(top), directory, path)
            while prepared:
                self._put(top, directory, *prepared[-1])
                prepared.pop()
        except OSError as error:
            raise disk_error(error, Path(top), "placing outputs under") from error
        finally:
            for _, temporary in prepared:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
        return PlacedFiles(
            written=tuple(sorted(entry.path for entry in wanted)),
            kept=tuple(sorted(entry.path for entry in kept)),
            removed=tuple(sorted(stale)),
        )

    def identities(self, directory: str) -> dict[str, Identity]:
        """The stat of each placed file under `directory` when it was right, by its path from the workspace."""
        return {
            f"{directory}/{name}": identity
            for name in self._placed.get(directory, ())
            if (identity := self._stats.identity(f"{directory}//{name}")) is not None
        }

    def save(self) -> None:
        """Write down what is known of the outputs. Call it at the end of a build."""
        self._stats.save()
        self._is_withdrawn = False

    # Inside.

    def _is_untouched(self, directory: str, entry: FileEntry) -> bool:
        if self._stats.identity(f"{directory}//{entry.path}") is None:
            return False
        try:
            status = os.lstat(f"{self._workspace}/{directory}/{entry.path}")
        except OSError:
            return False
        remembered = self._stats.get(f"{directory}//{entry.path}", status)
        return (
            remembered is not None
            and remembered.hex() == entry.digest.hash
            and status.st_size == entry.digest.size_bytes
            and bool(status.st_mode & stat.S_IXUSR) == entry.is_executable
            and status.st_mtime_ns < now_nanoseconds() - RACY_NANOSECONDS
        )

    def _is_right(self, top: str, directory: str, entry: FileEntry) -> bool:
        """Whether the file is there with the right bytes and mode. Reads it only where its stat is not known."""
        if self._is_untouched(directory, entry):
            return True
        path = f"{top}/{entry.path}"
        try:
            status = os.lstat(path)
            if (
                status.st_mode != stat.S_IFREG | _mode(entry)
                or status.st_size != entry.digest.size_bytes
                or self._store.function.of_file(Path(path)) != entry.digest
            ):
                return False
        except OSError:
            return False
        self._remember(directory, entry, status)
        return True

    def _stale(self, top: str, directory: str, wanted: set[str]) -> list[str]:
        placed = self._placed.get(directory)
        if placed is None:
            # Nothing is known of this directory: it is new, or the state was lost. Read-only files count as ours,
            # except in the directories of other targets below this one.
            placed = self._placed[directory] = _read_only_files(top, directory, self._placed)
        return sorted(placed - wanted)

    def _prepare(self, top: str, wanted: list[FileEntry], prepared: list[tuple[FileEntry, str]]) -> tuple[Digest, ...]:
        """Make a temporary file of each entry, beside its place. Returns the blobs that are missing."""
        missing = list(self._store.missing(entry.digest for entry in wanted))
        if missing:
            return tuple(missing)
        _make_room(self._workspace, top)
        for entry in wanted:
            temporary = f"{top}/{_TEMPORARY}{os.getpid()}-{os.urandom(6).hex()}"
            prepared.append((entry, temporary))
            try:
                self._make(temporary, entry)
            except (BlobMissingError, FileNotFoundError):
                missing.append(entry.digest)
        return tuple(dict.fromkeys(missing))

    def _make(self, temporary: str, entry: FileEntry) -> None:
        mode = _mode(entry)
        with self._store.open(entry.digest) as source:
            if entry.digest.size_bytes >= HARD_LINK_FROM_BYTES:
                status = os.fstat(source.fileno())
                linkable = status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == mode
                if linkable and _link(self._store.path_of(entry.digest), temporary):
                    return
            clone_or_copy(source.fileno(), temporary, mode=mode)
        then = now_nanoseconds() - _SET_BACK_NANOSECONDS
        os.utime(temporary, ns=(then, then))

    def _put(self, top: str, directory: str, entry: FileEntry, temporary: str) -> None:
        path = f"{top}/{entry.path}"
        if "/" in entry.path:
            _make_real_directories(Path(top), Path(path).parent)
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode):
                _remove_directory(path)
            elif status.st_ino == os.lstat(temporary).st_ino:
                # rename() between two names of one file does nothing, and leaves both names.
                os.unlink(path)
        os.replace(temporary, path)
        self._remember(directory, entry, os.lstat(path))

    def _remember(self, directory: str, entry: FileEntry, status: os.stat_result) -> None:
        self._stats.set(f"{directory}//{entry.path}", status, bytes.fromhex(entry.digest.hash))
        self._placed.setdefault(directory, set()).add(entry.path)

    def _remove(self, top: Path, directory: str, path: str) -> None:
        if _is_below_real_directories(top, path):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
                (top / path).unlink()
            for parent in (top / path).parents:
                if parent == top:
                    break
                with contextlib.suppress(OSError):
                    parent.rmdir()
        self._stats.forget(f"{directory}//{path}")
        self._placed.get(directory, set()).discard(path)


def _mode(entry: FileEntry) -> int:
    return 0o555 if entry.is_executable else 0o444


def _link(blob: Path, temporary: str) -> bool:
    try:
        os.link(blob, temporary)
    except OSError as error:
        if error.errno in _CANNOT_LINK:
            return False
        raise
    return True


def _check_path(path: str) -> None:
    if any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise ValueError(f"not a path below the target's directory: {path!r}")


def _is_below_real_directories(top: Path, path: str) -> bool:
    """Whether no parent of `path` inside `top` is a symbolic link, which could lead to other files."""
    parents = list((top / path).relative_to(top).parents)[:-1]
    return not any((top / parent).is_symlink() for parent in parents)


def _make_room(workspace: Path, top: str) -> None:
    """Make the directory of a target. An output of another target may be in its place or in its way."""
    with contextlib.suppress(OSError):
        os.mkdir(top)
        return
    if os.path.isdir(top):
        return
    for parent in reversed([Path(top), *Path(top).parents]):
        if workspace not in parent.parents or not parent.is_file():
            continue
        if parent.lstat().st_mode & 0o222:
            raise LocalEnvironmentError(
                f"{parent.relative_to(workspace)} is a file where the directory of outputs has to be",
                advice=("move it away",),
            )
        parent.unlink()
    os.makedirs(top, exist_ok=True)


def _make_real_directories(top: Path, wanted: Path) -> None:
    """Make `wanted` a directory below `top`. Files and symbolic links in the way are replaced."""
    for parent in reversed([wanted, *wanted.parents]):
        if parent == top or top not in parent.parents:
            continue
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            parent.unlink()
        parent.mkdir(exist_ok=True)


def _remove_directory(path: str) -> None:
    import shutil

    shutil.rmtree(path)


def _read_only_files(top: str, directory: str, others: Container[str]) -> set[str]:
    """Read-only files below `top`, which is `directory` of the workspace, except in the directories `others`."""
    found: set[str] = set()
    if not os.path.lexists(top):
        return found
    for folder, folders, names in os.walk(top):
        below = folder[len(top) + 1 :]
        prefix = f"{below}/" if below else ""
        folders[:] = [name for name in folders if f"{directory}/{prefix}{name}" not in others]
        for name in names:
            with contextlib.suppress(OSError):
                mode = os.lstat(f"{folder}/{name}").st_mode
                if stat.S_ISREG(mode) and (not mode & 0o222 or name.startswith(_TEMPORARY)):
                    found.add(f"{prefix}{name}")
    return found
