"""Lays out an action's inputs in its empty directory, and checks afterwards whether the action wrote to them.

A stage gets each blob as a symbolic link to the store's read-only file, so nothing is copied. A tool gets files of its
own (a reflink if the file system supports it, else a copy), because tools treat links in their own ways: tar archives
the link, and a program looks for its neighbours where the link leads. Executable inputs are copied too, because of
their mode.
"""

# ruff: noqa: PTH103, PTH123, PTH211
# Paths are strings here: to make a Path costs more than the system call that needs it.

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.copying import clone_or_copy
from mlcbuild.cache.digest import Digest
from mlcbuild.cache.store import BlobMissingError, LocalBlobStore
from mlcbuild.engine.action import StageCall
from mlcbuild.engine.executor import ExecutionRequest, FileEntry
from mlcbuild.execution.environment import TEMPORARY

_MODIFIED = 946_684_800  # 2000-01-01, the modification time of every copied input: the same in every run


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedBlob:
    """A blob that an action reads in the store, and the state of its file before."""

    entry: FileEntry
    file: Path
    signature: tuple[int, ...]

    @property
    def inode(self) -> int:
        return self.signature[0]


class MissingInputsError(Exception):
    """Blobs are no longer in the store. The engine makes them again."""

    def __init__(self, digests: Sequence[Digest]) -> None:
        super().__init__(f"{len(digests)} blobs are not in the store")
        self.digests = tuple(sorted(set(digests)))


def lay_out(request: ExecutionRequest, directory: Path, store: LocalBlobStore) -> tuple[LinkedBlob, ...]:
    """Put inputs and the directories for outputs into `directory`.

    Raises MissingInputsError, the other errors of the store, and OSError.
    """
    for parent in _directories(request):
        os.makedirs(f"{directory}/{parent}", exist_ok=True)
    may_link = isinstance(request.command, StageCall)
    linked: list[LinkedBlob] = []
    missing: list[Digest] = []
    for entry in request.inputs:
        try:
            file = store.path_of(entry.digest)
            if may_link and not entry.is_executable:
                linked.append(LinkedBlob(entry=entry, file=file, signature=_signature(file)))
                os.symlink(file, f"{directory}/{entry.path}")
            else:
                _copy(file, f"{directory}/{entry.path}", mode=0o555 if entry.is_executable else 0o444)
        except (BlobMissingError, FileNotFoundError):
            missing.append(entry.digest)
    if missing:
        raise MissingInputsError(missing)
    return tuple(linked)


def changed(blobs: Iterable[LinkedBlob]) -> list[LinkedBlob]:
    """Those whose file was written to.

    A file in its place is another matter: several actions that need one source store it at the same time, and the last
    one counts. The store has verified it, and will again.
    """
    found = []
    for blob in blobs:
        with contextlib.suppress(FileNotFoundError):
            inode, *rest = _signature(blob.file)
            if inode == blob.signature[0] and rest != list(blob.signature[1:]):
                found.append(blob)
    return found


def vanished(blobs: Iterable[LinkedBlob]) -> list[Digest]:
    """The digests of those whose file no longer exists."""
    return [blob.entry.digest for blob in blobs if not blob.file.exists()]


def _directories(request: ExecutionRequest) -> list[str]:
    """All directories to create, parents first."""
    found = {TEMPORARY}
    for path in (*(entry.path for entry in request.inputs), *request.outputs, *_argument_directories(request)):
        found.add(path.removesuffix("/") if path.endswith("/") else os.path.dirname(path))  # noqa: PTH120
    return sorted(found - {""})


def _argument_directories(request: ExecutionRequest) -> list[str]:
    """Directories among a stage's arguments, which may contain no file."""
    call = request.command
    if not isinstance(call, StageCall):
        return []
    paths = [path for _, value in call.inputs for path in ([value] if isinstance(value, str) else value)]
    return [path for path in paths if path.endswith("/")] + [path.rstrip("/") + "/" for _, path in call.groups]


def _signature(file: Path) -> tuple[int, ...]:
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _copy(source: Path, destination: str, *, mode: int) -> None:
    with open(source, "rb", buffering=0) as stream:
        clone_or_copy(stream.fileno(), destination, mode=mode)
    os.utime(destination, (_MODIFIED, _MODIFIED))
