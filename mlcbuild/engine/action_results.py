"""Converts results of actions to and from REAPI: files with full paths ⇄ output files and Trees of directories."""

from __future__ import annotations

from mlcbuild.cache import reapi
from mlcbuild.cache.digest import Digest
from mlcbuild.cache.merkle import TreeFile, files_of, tree_of
from mlcbuild.cache.store import BlobStore
from mlcbuild.engine.action import Action, CachePolicy
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.shared_form import listed_trees, marks_of

# A result contains a manifest up to this size, so that a cache hit discovers without reading a blob.
INLINE_BYTES = 1 << 20
# Marks a result that is true of this machine only. Commands without a graph, such as `cache push --all`, see by it that
# the result must stay here.
_STAYS_HERE = reapi.AnyMessage(type_url="type.mlcbuild.dev/StaysHere", value=b"")


def result_of(
    action: Action, outputs: tuple[FileEntry, ...], store: BlobStore, *, worker: str, log: bytes = b""
) -> reapi.ActionResult:
    """The result of an action that succeeded. Stores the Trees of its output directories, and its log.

    `outputs` are in the store already. Raises as the store does, and ValueError for an output that the action does not
    declare.
    """
    files: list[reapi.OutputFile] = []
    below: dict[str, list[TreeFile]] = {path: [] for path in action.outputs if path.endswith("/")}
    for entry in outputs:
        if entry.path in action.outputs:
            inlined = entry.path == action.manifest and entry.digest.size_bytes <= INLINE_BYTES
            files.append(
                reapi.OutputFile(
                    path=entry.path,
                    digest=entry.digest,
                    is_executable=entry.is_executable,
                    contents=store.read(entry.digest) if inlined else b"",
                )
            )
            continue
        directory = max((path for path in below if entry.path.startswith(path)), key=len, default=None)
        if directory is None:
            raise ValueError(f"{action.identifier} does not declare its output {entry.path!r}")
        relative = entry.path.removeprefix(directory)
        below[directory].append(TreeFile(relative, entry.digest, entry.is_executable))
    directories = [
        reapi.OutputDirectory(
            path=path.removesuffix("/"),
            tree_digest=store.put_bytes(tree_of(entries, store.function).encode()),
            is_topologically_sorted=True,
        )
        for path, entries in sorted(below.items())
    ]
    return reapi.ActionResult(
        output_files=tuple(sorted(files, key=lambda file: file.path)),
        output_directories=tuple(directories),
        stdout_digest=store.put_bytes(log) if log else None,
        execution_metadata=reapi.ExecutedActionMetadata(
            worker=worker or "local",
            auxiliary_metadata=(_STAYS_HERE,) if action.cache is CachePolicy.LOCAL else marks_of(action),
        ),
    )


def stays_here(result: reapi.ActionResult) -> bool:
    """Whether the result is true of the machine that made it only."""
    metadata = result.execution_metadata
    return metadata is not None and _STAYS_HERE in metadata.auxiliary_metadata


def outputs_of(result: reapi.ActionResult, store: BlobStore) -> tuple[FileEntry, ...]:
    """All files of a result by full path, sorted; of a result in its shared form as well.

    Raises BlobMissingError where a Tree has gone, and ValueError for a result that mlcbuild never writes: a damaged
    Tree, symbolic links, a path that leaves the action's directory. Both make the lookup a miss.
    """
    if result.output_symlinks:
        raise ValueError(f"a symbolic link in a result: {result.output_symlinks[0].path!r}")
    trees = listed_trees(result)
    entries = [
        FileEntry(path=file.path, digest=file.digest, is_executable=file.is_executable)
        for file in result.output_files
        if file.path not in trees
    ]
    trees |= {directory.path: directory.tree_digest for directory in result.output_directories}
    for top, tree_digest in trees.items():
        tree = reapi.Tree.decode(store.read(tree_digest))
        entries += [
            FileEntry(path=f"{top}/{path}", digest=digest, is_executable=is_executable)
            for path, digest, is_executable in files_of(tree, store.function)
        ]
    for entry in entries:
        for name in entry.path.split("/"):
            reapi.check_name(name)
    return tuple(sorted(entries))


def manifest_of(action: Action, result: reapi.ActionResult, store: BlobStore) -> bytes:
    """The bytes of the manifest of a discovering action: inlined, or from the store.

    Raises BlobMissingError where it has gone, and ValueError where the result has no such file.
    """
    for file in result.output_files:
        if file.path == action.manifest:
            if file.contents and store.function.of_bytes(file.contents) == file.digest:
                return file.contents
            return store.read(file.digest)
    raise ValueError(f"{action.identifier}: the result holds no manifest {action.manifest!r}")


def blobs_of(result: reapi.ActionResult) -> tuple[Digest, ...]:
    """The digests that a result itself names, with those of its Trees. `outputs_of` tells the files inside Trees."""
    digests = [file.digest for file in result.output_files]
    digests += [directory.tree_digest for directory in result.output_directories]
    return tuple(dict.fromkeys(digests))
