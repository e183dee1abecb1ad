"""Lays out an action's inputs in its empty directory, and checks afterwards whether the action wrote to them.

A stage gets each blob as a symbolic link to the store's read-only file, or to a large file of the workspace, so nothing
is copied. A tool gets files of its own (a reflink if the file system supports it, else a copy), because tools treat
links in their own ways: tar archives the link, and a program looks for its neighbours where the link leads. Executable
inputs are copied too, because of their mode. A folder of very many files that a stage names as one input is one link,
where `trees` keeps such folders.
"""

# ruff: noqa: PTH103, PTH211
# Paths are strings here: to make a Path costs more than the system call that needs it.

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.store import BlobMissingError, LocalBlobStore
from mlcbuild.engine.action import StageCall
from mlcbuild.engine.executor import ExecutionRequest, FileEntry
from mlcbuild.execution.environment import TEMPORARY
from mlcbuild.execution.input_trees import LEAST_FILES, InputTrees, TreeFile, copy_input


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedBlob:
    """A blob that an action reads in the store, and the state of its file before. A file of the workspace may change
    meanwhile, for which the engine looks."""

    entry: FileEntry
    file: Path
    signature: tuple[int, ...]
    is_source: bool = False

    @property
    def inode(self) -> int:
        return self.signature[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What an action reads outside of its directory: blobs, and the folders of `InputTrees` with links to some."""

    blobs: tuple[LinkedBlob, ...]
    trees: tuple[Path, ...]


class MissingInputsError(Exception):
    """Blobs are no longer in the store. The engine makes them again."""

    def __init__(self, digests: Sequence[Digest]) -> None:
        super().__init__(f"{len(digests)} blobs are not in the store")
        self.digests = tuple(sorted(set(digests)))


def lay_out(
    request: ExecutionRequest, directory: Path, store: LocalBlobStore, trees: InputTrees | None = None
) -> Layout:
    """Put inputs and the directories for outputs into `directory`.

    Raises MissingInputsError, the other errors of the store, and OSError.
    """
    shared = _shared_folders(request) if trees is not None else {}
    for parent in _directories(request, shared):
        os.makedirs(f"{directory}/{parent}", exist_ok=True)
    may_link = isinstance(request.command, StageCall)
    in_place = dict(request.in_place) if may_link else {}
    linked: list[LinkedBlob] = []
    missing: list[Digest] = []
    in_trees: dict[str, list[TreeFile]] = {folder: [] for folder in shared}
    for entry in request.inputs:
        folder = next((each for each in shared if entry.path.startswith(each)), "")
        try:
            is_source = entry.digest in in_place
            # The sandbox allows the file that is read, and not a link to it.
            file = Path(os.path.realpath(in_place[entry.digest])) if is_source else store.path_of(entry.digest)
            is_link = may_link and not entry.is_executable
            if is_link:
                signature = _signature(file)
                linked.append(LinkedBlob(entry=entry, file=file, signature=signature, is_source=is_source))
            if folder:
                path = entry.path.removeprefix(folder)
                in_trees[folder].append(TreeFile(path=path, file=str(file), is_executable=entry.is_executable))
            elif is_link:
                os.symlink(file, f"{directory}/{entry.path}")
            else:
                copy_input(file, f"{directory}/{entry.path}", mode=0o555 if entry.is_executable else 0o444)
        except (BlobMissingError, FileNotFoundError):
            missing.append(entry.digest)
    if missing:
        raise MissingInputsError(missing)
    used = []
    for folder, files in in_trees.items():
        assert trees is not None
        used.append(trees.tree_of(files))
        os.symlink(used[-1], f"{directory}/{folder.rstrip('/')}")
    return Layout(blobs=tuple(linked), trees=tuple(used))


def changed(blobs: Iterable[LinkedBlob]) -> list[LinkedBlob]:
    """Those whose file was written to.

    A file in its place is another matter: several actions that need one source store it at the same time, and the last
    one counts. The store has verified it, and will again.
    """
    found = []
    for blob in blobs:
        if blob.is_source:
            continue
        with contextlib.suppress(FileNotFoundError):
            inode, *rest = _signature(blob.file)
            if inode == blob.signature[0] and rest != list(blob.signature[1:]):
                found.append(blob)
    return found


def vanished(blobs: Iterable[LinkedBlob]) -> list[Digest]:
    """The digests of those whose file no longer exists."""
    return [blob.entry.digest for blob in blobs if not blob.file.exists()]


def _shared_folders(request: ExecutionRequest) -> dict[str, int]:
    """The folders that a stage names as inputs and that hold very many files, and how many; none is in another."""
    call = request.command
    if not isinstance(call, StageCall) or len(request.inputs) < LEAST_FILES:
        return {}
    named = [path for _, path in call.inputs if isinstance(path, str) and path.endswith("/")]
    counts = dict.fromkeys(named, 0)
    for entry in request.inputs:
        for folder in named:
            counts[folder] += entry.path.startswith(folder)
    large = {folder: count for folder, count in counts.items() if count >= LEAST_FILES}
    return {
        folder: count
        for folder, count in large.items()
        if not any(folder != other and (folder.startswith(other) or other.startswith(folder)) for other in named)
        and not any(output.startswith(folder) for output in request.outputs)
    }


def _directories(request: ExecutionRequest, shared: Collection[str] = ()) -> list[str]:
    """All directories to create, parents first. Those that are `shared` become links."""
    inputs = [entry.path for entry in request.inputs if not any(entry.path.startswith(each) for each in shared)]
    found = {TEMPORARY, *(os.path.dirname(folder.rstrip("/")) for folder in shared)}  # noqa: PTH120
    for path in (*inputs, *request.outputs, *_argument_directories(request)):
        if path not in shared:
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
