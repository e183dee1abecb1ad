"""Brings bytes into the local store before an action or a target needs them: source files, and blobs of a remote.

A large source file, such as a checkpoint, may be read where it lies instead: that saves to write, and to keep, a copy
of gigabytes. Its digest is of bytes that this build has read, and after the action its stat must still be the same
(`change_in`), or nothing that was made of it is kept. On a server's file system, whose times are less reliable, it is
stored all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.file_digests import FileDigests, FileState
from mlcbuild.cache.file_systems import file_system_of
from mlcbuild.cache.store import LocalBlobStore
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.remote import RemoteCache
from mlcbuild.engine.scheduler_events import SourceDigested, SourceUnavailable
from mlcbuild.errors import CacheError, MlcbuildError

_SOURCES_A_JOB = 64
_IN_PLACE_FROM_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedInputs:
    """What came of a fetch: the blobs that nobody has, or, for people, the error that makes the files useless."""

    missing: tuple[Digest, ...] = ()
    error: str = ""
    environment: bool = False  # the error is one of this machine


class InputFetcher:
    """Digests each source file once in a build. A file that changes before the end of the build is an error."""

    def __init__(
        self,
        *,
        workspace: Path,
        store: LocalBlobStore,
        digests: FileDigests,
        remote: RemoteCache | None,
        on_failure: Callable[[CacheError], None],
    ) -> None:
        self._workspace = workspace
        self._store = store
        self._digests = digests
        self._remote = remote
        self._on_failure = on_failure
        self._sources: dict[str, FileState] = {}
        self._storing: dict[Digest, Lock] = {}

    def digesting(self, paths: Sequence[str]) -> Iterator[Callable[[], list[SourceDigested | SourceUnavailable]]]:
        """Jobs for any thread; each digests some of the source files."""
        for start in range(0, len(paths), _SOURCES_A_JOB):
            yield partial(self._digest, paths[start : start + _SOURCES_A_JOB])

    def _digest(self, paths: Iterable[str]) -> list[SourceDigested | SourceUnavailable]:
        answers: list[SourceDigested | SourceUnavailable] = []
        for path in paths:
            try:
                state = self._digests.of(path)
            except MlcbuildError as error:
                answers.append(SourceUnavailable(path=path, message=str(error)))
            else:
                self._sources[path] = state
                answers.append(SourceDigested(path=path, digest=state.digest, is_executable=state.is_executable))
        return answers

    def missing(self, files: Sequence[FileEntry]) -> tuple[Digest, ...]:
        """The blobs of `files` that are not in the store. Costs one stat for each file."""
        return self._store.missing(entry.digest for entry in files)

    def in_place(self, missing: Sequence[Digest], sources: Sequence[str]) -> dict[Digest, str]:
        """Those of `sources` (workspace paths) that can be read where they lie, by their digests."""
        wanted = set(missing)
        return {
            state.digest: path
            for path in sources
            if (state := self._sources[path]).digest in wanted
            and state.digest.size_bytes >= _IN_PLACE_FROM_BYTES
            and (self._workspace / path).is_file()
            and not file_system_of(self._workspace / path).is_network
        }

    def location(self, path: str) -> str:
        return str(self._workspace / path)

    def fetch(
        self, missing: Sequence[Digest], sources: Sequence[str], *, in_place: Iterable[str] = ()
    ) -> FetchedInputs:
        """Bring missing blobs into the store, from `sources` (workspace paths) and the remote. Those that are read
        `in_place` are hashed, unless this build has done so. May take long."""
        wanted = set(missing)
        for path in in_place:
            try:
                if self._digests.hashed(path) != self._sources[path]:
                    return FetchedInputs(error=_changed(path))
            except MlcbuildError as error:
                return FetchedInputs(error=str(error))
        for path in sources:
            state = self._sources[path]
            if state.digest not in wanted:
                continue
            try:
                stored = self._stored(path, state.digest)
            except MlcbuildError as error:
                return FetchedInputs(error=str(error), environment=True)
            except (OSError, ValueError) as error:
                return FetchedInputs(error=f"the source file {path!r} cannot be read: {error}")
            if stored != state.digest:
                return FetchedInputs(error=_changed(path))
            wanted.discard(state.digest)
        left = tuple(digest for digest in missing if digest in wanted)
        if left and self._remote is not None:
            try:
                left = self._remote.fetch(left, self._store)
            except CacheError as error:
                self._on_failure(error)
                left = self._store.missing(left)
        return FetchedInputs(missing=left)

    def _stored(self, path: str, digest: Digest) -> Digest:
        """Store a source file once. To store it again would replace the file that another action may be reading."""
        with self._storing.setdefault(digest, Lock()):
            return self._store.put_file(self._workspace / path) if self._store.missing([digest]) else digest

    def change_in(self, sources: Iterable[str]) -> str:
        """What to tell people where a source is no longer what was digested; "" where none changed.

        Costs one stat for each file that was not touched just before it was digested.
        """
        for path in sources:
            try:
                current = self._digests.of(path)
            except MlcbuildError:
                return _changed(path)
            if current != self._sources[path]:
                return _changed(path)
        return ""


def _changed(path: str) -> str:
    return f"the source file {path!r} changed during the build; nothing made from it was kept: build again"
