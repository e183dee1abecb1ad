"""Places a target's outputs: files of a store under a directory, and nothing else there that an earlier build left.

Outputs are read-only (0444, 0555 where executable), as Bazel's are: they are copies of cached content, and
whoever wants to edit one should notice. They share blocks with the store where the file system can; else they
are copies, except that blobs from 8 MiB on are hard links where owner and mode allow (weights are gigabytes).
A copy's modification time is set three seconds back, so that an edit always changes it, even in the same tick
of the clock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.copying import clone_or_copy
from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import disk_error
from mlcbuild.cache.stat_memory import SETTLING_NANOSECONDS, Identity, StatMemory, now_nanoseconds
from mlcbuild.cache.store import BlobMissingError, LocalBlobStore
from mlcbuild.engine.executor import FileEntry
from mlcbuild.errors import LocalEnvironmentError

HARD_LINK_FROM_BYTES = 8 << 20
_SET_BACK_NANOSECONDS = SETTLING_NANOSECONDS + 1_000_000_000
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
        self._memory = StatMemory(state_path, kind=f"outputs {store.function.value}")
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
        top = self._workspace / directory
        stale = self._stale(top, directory, {entry.path for entry in files})
        kept: list[FileEntry] = []
        wanted: list[FileEntry] = []
        for entry in files:
            _check_path(entry.path)
            (kept if self._is_right(top, directory, entry) else wanted).append(entry)
        prepared: list[tuple[FileEntry, Path]] = []
        try:
            missing = self._prepare(top, wanted, prepared)
            if missing:
                return Placement(missing=missing)
            if (stale or prepared) and not self._is_withdrawn:
                self._memory.withdraw()
                self._is_withdrawn = True
            for path in stale:
                self._remove(top, directory, path)
            for entry, temporary in prepared:
                self._put(top, directory, entry, temporary)
        except OSError as error:
            raise disk_error(error, top, "placing outputs under") from error
        finally:
            for _, temporary in prepared:
                with contextlib.suppress(OSError):
                    temporary.unlink()
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
            and status.st_mtime_ns < now_nanoseconds() - SETTLING_NANOSECONDS
        )

    def _is_right(self, top: Path, directory: str, entry: FileEntry) -> bool:
        """Whether the file is there with the right bytes and mode: by memory, else by reading it."""
        if self._is_untouched(directory, entry):
            return True
        path = top / entry.path
        try:
            status = path.lstat()
            if (
                status.st_mode != stat.S_IFREG | _mode(entry)
                or status.st_size != entry.digest.size_bytes
                or self._store.function.of_file(path) != entry.digest
            ):
                return False
        except OSError:
            return False
        self._remember(directory, entry, status)
        return True

    def _stale(self, top: Path, directory: str, wanted: set[str]) -> list[str]:
        placed = self._placed.get(directory)
        if placed is None:
            # Nothing is known of this directory: it is new, or the state was lost. Read-only files are taken for
            # ours, but for those in the directories of other targets below this one.
            others = {str(self._workspace / other) for other in self._placed}
            placed = self._placed[directory] = _read_only_files(top, others)
        return sorted(placed - wanted)

    def _prepare(
        self, top: Path, wanted: list[FileEntry], prepared: list[tuple[FileEntry, Path]]
    ) -> tuple[Digest, ...]:
        """Make a temporary file of each entry beside its place; answer the blobs that are not there."""
        missing = list(self._store.missing(entry.digest for entry in wanted))
        if missing:
            return tuple(missing)
        _make_room(self._workspace, top)
        for entry in wanted:
            temporary = top / f"{_TEMPORARY}{os.getpid()}-{os.urandom(6).hex()}"
            prepared.append((entry, temporary))
            try:
                self._make(self._store.path_of(entry.digest), temporary, entry)
            except (BlobMissingError, FileNotFoundError):
                missing.append(entry.digest)
        return tuple(dict.fromkeys(missing))

    def _make(self, blob: Path, temporary: Path, entry: FileEntry) -> None:
        with blob.open("rb", buffering=0) as source:
            status = os.fstat(source.fileno())
            linkable = (
                entry.digest.size_bytes >= HARD_LINK_FROM_BYTES
                and status.st_uid == os.geteuid()
                and stat.S_IMODE(status.st_mode) == _mode(entry)
            )
            if linkable and _link(blob, temporary):
                return
            clone_or_copy(source.fileno(), str(temporary), mode=_mode(entry))
        then = now_nanoseconds() - _SET_BACK_NANOSECONDS
        os.utime(temporary, ns=(then, then))

    def _put(self, top: Path, directory: str, entry: FileEntry, temporary: Path) -> None:
        path = top / entry.path
        _make_real_directories(top, path.parent)
        if path.is_dir() and not path.is_symlink():
            _remove_directory(path)
        # rename() of two names of one file does nothing and leaves both.
        with contextlib.suppress(FileNotFoundError):
            if path.lstat().st_ino == temporary.lstat().st_ino:
                path.unlink()
        temporary.replace(path)
        self._remember(directory, entry, path.lstat())

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


def _link(blob: Path, temporary: Path) -> bool:
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


def _make_room(workspace: Path, top: Path) -> None:
    """Make a target's own directory, in whose place or way an output of a target of another name may lie."""
    for parent in reversed([top, *top.parents]):
        if workspace not in parent.parents or not parent.is_file():
            continue
        if parent.lstat().st_mode & 0o222:
            raise LocalEnvironmentError(
                f"{parent.relative_to(workspace)} is a file, and outputs are to be placed under it",
                advice=("move it away",),
            )
        parent.unlink()
    top.mkdir(parents=True, exist_ok=True)


def _make_real_directories(top: Path, wanted: Path) -> None:
    """Make `wanted` a directory below `top`; a file or symbolic link in the way is replaced."""
    for parent in reversed([wanted, *wanted.parents]):
        if parent == top or top not in parent.parents:
            continue
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            parent.unlink()
        parent.mkdir(exist_ok=True)


def _remove_directory(path: Path) -> None:
    import shutil

    shutil.rmtree(path)


def _read_only_files(top: Path, others: set[str]) -> set[str]:
    found: set[str] = set()
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if f"{folder}/{name}" not in others]
        for name in names:
            path = Path(folder, name)
            with contextlib.suppress(OSError):
                mode = path.lstat().st_mode
                if stat.S_ISREG(mode) and (not mode & 0o222 or name.startswith(_TEMPORARY)):
                    found.add(str(path.relative_to(top)))
    return found
