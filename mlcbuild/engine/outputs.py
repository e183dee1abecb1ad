"""Places a target's outputs: files of a store under a directory, and nothing else there that an earlier build left.

Outputs are read-only (0444, 0555 where executable), as Bazel's are: they are copies of cached content, and
whoever wants to edit one should notice. They share blocks with the store where the file system can; else they
are copies, except that blobs from 8 MiB on are hard links where owner and mode allow (weights are gigabytes).
A copy's modification time is set three seconds back, so that an edit always changes it, even in the same tick
of the clock.
"""

# ruff: noqa: PTH102, PTH103, PTH105, PTH108, PTH112
# Paths are strings here: making a Path costs more than the system call that it is for.

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
class Placement:
    """What came of placing: paths relative to the target's directory, sorted.

    Where `missing` names blobs that the store lacks, nothing was changed: make them again and place again.
    """

    written: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    missing: tuple[Digest, ...] = ()


class OutputPlacer:
    """Places outputs below a workspace.

    `state_path` remembers what lies where, so that a check is one stat a file.
    """

    def __init__(self, workspace: Path, store: LocalBlobStore, state_path: Path | None = None) -> None:
        self._workspace = workspace
        self._store = store
        self._memory = StatCache(state_path, kind=f"outputs {store.function.value}")
        # The state on disk is taken away at the first change and written again by `save`: a build that was killed
        # in between leaves outputs that nobody knows of, and they are looked at anew.
        self._is_withdrawn = False
        self._placed: dict[str, set[str]] = {}
        for path in self._memory.paths():
            directory, _, name = path.partition("//")
            self._placed.setdefault(directory, set()).add(name)

    def is_current(self, directory: str, files: tuple[FileEntry, ...]) -> bool:
        """Whether exactly these files of ours lie under `directory`, untouched; a stat a file, no bytes read."""
        if self._placed.get(directory, set()) != {entry.path for entry in files}:
            return False
        return all(self._is_untouched(directory, entry) for entry in files)

    def place(self, directory: str, files: tuple[FileEntry, ...]) -> Placement:
        """Make `directory` (relative to the workspace) hold these files; remove what an earlier build put there.

        All are prepared before the first is renamed into place. Raises LocalEnvironmentError where the disk
        is full, CacheError where the directory cannot be written, ValueError for paths that leave it.
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
                return Placement(missing=missing)
            if (stale or prepared) and not self._is_withdrawn:
                self._memory.invalidate()
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
        return Placement(
            written=tuple(sorted(entry.path for entry in wanted)),
            kept=tuple(sorted(entry.path for entry in kept)),
            removed=tuple(sorted(stale)),
        )

    def identities(self, directory: str) -> dict[str, Identity]:
        """The stat of each file of ours under `directory`, by path from the workspace, as it was when it was right."""
        return {
            f"{directory}/{name}": identity
            for name in self._placed.get(directory, ())
            if (identity := self._memory.identity(f"{directory}//{name}")) is not None
        }

    def save(self) -> None:
        """Write what is known of the outputs; call it at the end of a build."""
        self._memory.save()
        self._is_withdrawn = False

    # Inside

    def _is_untouched(self, directory: str, entry: FileEntry) -> bool:
        if self._memory.identity(f"{directory}//{entry.path}") is None:
            return False
        try:
            status = os.lstat(f"{self._workspace}/{directory}/{entry.path}")
        except OSError:
            return False
        remembered = self._memory.get(f"{directory}//{entry.path}", status)
        return (
            remembered is not None
            and remembered.hex() == entry.digest.hash
            and status.st_size == entry.digest.size_bytes
            and bool(status.st_mode & stat.S_IXUSR) == entry.is_executable
            and status.st_mtime_ns < now_nanoseconds() - RACY_NANOSECONDS
        )

    def _is_right(self, top: str, directory: str, entry: FileEntry) -> bool:
        """Whether the file is there with the right bytes and mode: by memory, else by reading it."""
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
            # Nothing is known of this directory: it is new, or the state was lost. Read-only files are taken for
            # ours, but for those in the directories of other targets below this one.
            placed = self._placed[directory] = _read_only_files(top, directory, self._placed)
        return sorted(placed - wanted)

    def _prepare(self, top: str, wanted: list[FileEntry], prepared: list[tuple[FileEntry, str]]) -> tuple[Digest, ...]:
        """Make a temporary file of each entry beside its place; answer the blobs that are not there."""
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
                # rename() of two names of one file does nothing and leaves both.
                os.unlink(path)
        os.replace(temporary, path)
        self._remember(directory, entry, os.lstat(path))

    def _remember(self, directory: str, entry: FileEntry, status: os.stat_result) -> None:
        self._memory.set(f"{directory}//{entry.path}", status, bytes.fromhex(entry.digest.hash))
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
        self._memory.forget(f"{directory}//{path}")
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
    """Whether no parent of `path` inside `top` is a symbolic link, through which one could reach other files."""
    parents = list((top / path).relative_to(top).parents)[:-1]
    return not any((top / parent).is_symlink() for parent in parents)


def _make_room(workspace: Path, top: str) -> None:
    """Make a target's own directory, in whose place or way an output of a target of another name may lie."""
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
                f"{parent.relative_to(workspace)} is a file, and outputs are to be placed under it",
                advice=("move it away",),
            )
        parent.unlink()
    os.makedirs(top, exist_ok=True)


def _make_real_directories(top: Path, wanted: Path) -> None:
    """Make `wanted` a directory below `top`; a file or symbolic link in the way is replaced."""
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
    """Files below `top`, which is `directory` of the workspace, but for those in directories that are `others`."""
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
