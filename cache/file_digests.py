"""Digests of the workspace's source files. A file is hashed again only when its stat has changed."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.stat_cache import Identity, StatCache, identity_of, is_racy, now_nanoseconds
from mlcbuild.errors import Location, WorkspaceError
from mlcbuild.regular_files import open_regular

_ATTEMPTS = 3
_CHUNK_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """What a key depends on: a source file's content, and whether its owner may execute it."""

    digest: Digest
    is_executable: bool


class FileDigests:
    """Digests of files by path relative to `root`. They are kept in `cache_path` between builds.

    Call `save` at the end of a build. Safe to call from several threads.
    """

    def __init__(self, root: Path, function: DigestFunction, cache_path: Path | None = None) -> None:
        self._root = str(root)
        self._function = function
        self.observed: set[str] = set()  # the paths that were asked for
        self._cache = StatCache(cache_path, kind=f"file digests {function.value}")
        self._hashed: dict[str, tuple[Identity, FileState]] = {}  # by this process

    def of(self, path: str) -> FileState:
        """The state of a file; symbolic links are followed.

        A file that was written within the last two seconds is always hashed, because another write might not change
        its stat. Raises WorkspaceError for a file that is missing, is no regular file, or is being written.
        """
        location = f"{self._root}/{path}"
        self.observed.add(path)
        try:
            status = os.stat(location)  # noqa: PTH116
            remembered = self._cache.get(path, status)
            if remembered is not None and not is_racy(status, now_nanoseconds()):
                digest = Digest(remembered.hex(), status.st_size)
                return FileState(digest=digest, is_executable=bool(status.st_mode & stat.S_IXUSR))
            return self._hash(path, location)
        except OSError as error:
            raise WorkspaceError(
                f"the source file {path!r} cannot be read: {_reason(location, error)}",
                location=Location(path=path),
                advice=("check the path in BUILD.toml, and the file's mode",),
            ) from error

    def hashed(self, path: str) -> FileState:
        """As `of`, but what an earlier process has hashed is hashed again."""
        with contextlib.suppress(OSError):
            identity, state = self._hashed.get(path, (None, None))
            if state is not None and identity == identity_of(os.stat(f"{self._root}/{path}")):  # noqa: PTH116
                return state
        self._cache.forget(path)
        return self.of(path)

    def save(self) -> None:
        """Write new digests to the cache file, if there are any."""
        self._cache.save()

    def _hash(self, path: str, location: str) -> FileState:
        for _ in range(_ATTEMPTS):
            started = now_nanoseconds()
            descriptor = open_regular(location)
            try:
                before = os.fstat(descriptor)
                hasher, size = self._function.hasher(), 0
                # Stop after one byte too many: a process that keeps appending must not keep us here.
                while size <= before.st_size and (chunk := os.read(descriptor, _CHUNK_BYTES)):
                    hasher.update(chunk)
                    size += len(chunk)
            finally:
                os.close(descriptor)
            # By path, not by descriptor: an editor may have replaced the file.
            after = os.stat(location)  # noqa: PTH116
            if identity_of(before) != identity_of(after) or size != before.st_size:
                continue
            digest = Digest(hasher.hexdigest(), size)
            if is_racy(before, started):
                self._cache.forget(path)
            else:
                self._cache.set(path, before, bytes.fromhex(digest.hash))
            state = FileState(digest=digest, is_executable=bool(before.st_mode & stat.S_IXUSR))
            self._hashed[path] = identity_of(before), state
            return state
        raise WorkspaceError(
            f"the source file {path!r} changed while it was read",
            location=Location(path=path),
            advice=("build again once no program writes to it",),
        )


def _reason(location: str, error: OSError) -> str:
    """Why a file cannot be read, for people. The system says of a broken link that the link does not exist."""
    if isinstance(error, FileNotFoundError):
        with contextlib.suppress(OSError):
            return f"it is a link to {str(Path(location).readlink())!r}, which does not exist"
    return error.strerror or str(error)
