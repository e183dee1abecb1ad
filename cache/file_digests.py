"""Digests of the workspace's source files, hashed once as long as their stat stays the same."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.stat_memory import StatMemory, identity_of, is_settled, now_nanoseconds
from mlcbuild.errors import Location, WorkspaceError

_ATTEMPTS = 3
_CHUNK_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """What counts of a source file: its content, and whether its owner may execute it."""

    digest: Digest
    is_executable: bool


class FileDigests:
    """Digests of files by path relative to `root`. `memory_path` is where they are kept between builds.

    Call `save` at the end of a build. Safe to call from several threads.
    """

    def __init__(self, root: Path, function: DigestFunction, memory_path: Path | None = None) -> None:
        self._root = str(root)
        self._function = function
        self.observed: set[str] = set()  # the paths that were asked for
        self._memory = StatMemory(memory_path, kind=f"file digests {function.value}")

    def of(self, path: str) -> FileState:
        """The state of a file; symbolic links are followed.

        A file that was touched within the last two seconds is always hashed, because a further write could
        leave its stat as it is. Raises WorkspaceError for what is missing, no regular file, or still being
        written.
        """
        location = f"{self._root}/{path}"
        self.observed.add(path)
        try:
            status = os.stat(location)  # noqa: PTH116
            remembered = self._memory.get(path, status)
            if remembered is not None and is_settled(status, now_nanoseconds()):
                digest = Digest(remembered.hex(), status.st_size)
                return FileState(digest=digest, is_executable=bool(status.st_mode & stat.S_IXUSR))
            return self._hash(path, location)
        except OSError as error:
            raise WorkspaceError(
                f"the source file {path!r} cannot be read: {error.strerror or error}",
                location=Location(path=path),
                advice=("check the path in BUILD.toml, and the file's mode",),
            ) from error

    def save(self) -> None:
        """Write what was learnt; does nothing where nothing was."""
        self._memory.save()

    def _hash(self, path: str, location: str) -> FileState:
        for _ in range(_ATTEMPTS):
            started = now_nanoseconds()
            descriptor = os.open(location, os.O_RDONLY | os.O_CLOEXEC)
            try:
                before = os.fstat(descriptor)
                if not stat.S_ISREG(before.st_mode):
                    raise WorkspaceError(f"the source {path!r} is not a regular file", location=Location(path=path))
                hasher, size = self._function.hasher(), 0
                # A file that somebody appends to has no end; one byte more than its size tells enough.
                while size <= before.st_size and (chunk := os.read(descriptor, _CHUNK_BYTES)):
                    hasher.update(chunk)
                    size += len(chunk)
            finally:
                os.close(descriptor)
            # By path, not by descriptor: an editor that replaces the file is a change as well.
            after = os.stat(location)  # noqa: PTH116
            if identity_of(before) != identity_of(after) or size != before.st_size:
                continue
            digest = Digest(hasher.hexdigest(), size)
            if is_settled(before, started):
                self._memory.set(path, before, bytes.fromhex(digest.hash))
            else:
                self._memory.forget(path)
            return FileState(digest=digest, is_executable=bool(before.st_mode & stat.S_IXUSR))
        raise WorkspaceError(
            f"the source file {path!r} changes while it is read",
            location=Location(path=path),
            advice=("build again when nothing writes to it any more",),
        )
