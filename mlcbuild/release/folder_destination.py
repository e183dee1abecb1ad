"""Writes a release into a folder: into a partial folder beside it, which is renamed when everything is there.

The partial folder of an interrupted release stays. The next one checks its files, keeps those that are right, and
writes the others.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.release.contents import ReleaseFile
from mlcbuild.release.places import Folder

_PIECE_BYTES = 1 << 20
NEVER_CHANGED = "a release is never changed: give another place, or remove what is there"


class FolderDestination:
    """`folder` must not exist, or be empty, or hold this very release. Raises UsageError for anything else."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(os.path.abspath(folder))  # noqa: PTH100  Without "..", so that it has a parent and a name.
        self._shown = folder
        if not self._folder.parent.is_dir():
            raise UsageError(f"{folder.parent} is not a directory")
        if os.path.lexists(self._folder) and (self._folder.is_symlink() or not self._folder.is_dir()):
            raise UsageError(f"{folder} is not a directory")

    @property
    def address(self) -> str:
        return str(self._folder)

    def holds(self, files: Sequence[ReleaseFile], *, is_same_provenance: Callable[[bytes], bool]) -> bool:
        """Whether the folder holds exactly these files. Raises UsageError if it holds anything else.

        The last file is the provenance, whose signature may be another one each time.
        """
        if not self._folder.is_dir() or not any(self._folder.iterdir()):
            return False
        *others, provenance = files
        listing = Folder(self._folder).listing()
        same = not listing.irregular and listing.sizes.keys() == {file.path for file in files}
        if same and all(_is_right(self._folder, file) for file in others):
            with contextlib.suppress(OSError):
                if is_same_provenance(Folder(self._folder).read(provenance.path)):
                    return True
        raise UsageError(f"{self._shown} holds something else than this release", advice=(NEVER_CHANGED,))

    def write(self, files: Sequence[ReleaseFile], *, told: Callable[[int], object]) -> int:
        """Put all files there, or nothing. Returns the number of files that an earlier attempt had written.

        `told` is called with numbers of bytes. Raises LocalEnvironmentError if the disk is full, or if a source is not
        what its digest says.
        """
        partial = self._folder.with_name(f".{self._folder.name}.partial")
        kept = 0
        try:
            partial.mkdir(exist_ok=True)
            with _locked(partial):
                _remove_others(partial, {file.path for file in files})
                for file in files:
                    if _is_right(partial, file):
                        kept += 1
                        told(file.size_bytes)
                    else:
                        _write(partial, file, told)
                _flush_folders(partial)
                if self._folder.is_dir():
                    self._folder.rmdir()  # It is empty, or this fails.
                partial.rename(self._folder)
                _flush(self._folder.parent)
        except OSError as error:
            raise LocalEnvironmentError(
                f"the release cannot be written to {self._shown}: {error.strerror or error}",
                advice=(f"what is written lies in {partial}; the same command continues with what is left",),
            ) from error
        return kept


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two commands that write the same release at once would remove each other's files."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LocalEnvironmentError(f"another release is being written to {folder}") from None
        yield
    finally:
        os.close(descriptor)


def _is_right(top: Path, file: ReleaseFile) -> bool:
    try:
        status = (top / file.path).lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size != file.size_bytes:
            return False
        is_executable = bool(status.st_mode & stat.S_IXUSR)
        return is_executable == file.is_executable and Folder(top).sha256(file.path) == file.sha256
    except OSError:
        return False


def _write(top: Path, file: ReleaseFile, told: Callable[[int], object]) -> None:
    """Write a file, and check what was written against its digest. Raises OSError, LocalEnvironmentError.

    What is in its place is unlinked, never opened: it may be a link, to a file that belongs to somebody else.
    """
    path = top / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as written:
        for piece in _pieces(file):
            digest.update(piece)
            written.write(piece)
            told(len(piece))
        written.flush()
        os.fchmod(written.fileno(), 0o755 if file.is_executable else 0o644)
        os.fsync(written.fileno())
    if digest.hexdigest() != file.sha256:
        path.unlink()
        raise LocalEnvironmentError(
            f"{file.path} changed while the release was written", advice=("run the same command again",)
        )


def _pieces(file: ReleaseFile) -> Iterator[bytes]:
    if file.source is None:
        yield file.data
        return
    with file.source.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            yield piece


def _remove_others(top: Path, wanted: set[str]) -> None:
    """Remove what is not part of the release: other files, folders that it does not have, and everything that is
    neither file nor folder.
    """
    folders = {parent for path in wanted for parent in _parents(path)}
    for directory, names, files in os.walk(top):
        below = os.path.relpath(directory, top)
        prefix = "" if below == "." else f"{below}/"
        for name in list(names):
            path = Path(directory, name)
            if path.is_symlink():
                path.unlink()
                names.remove(name)
            elif f"{prefix}{name}" not in folders:
                shutil.rmtree(path)
                names.remove(name)
        for name in files:
            path = Path(directory, name)
            if f"{prefix}{name}" not in wanted or not stat.S_ISREG(path.lstat().st_mode):
                path.unlink()


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _flush_folders(top: Path) -> None:
    for directory, _, _ in os.walk(top):
        _flush(Path(directory))


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
