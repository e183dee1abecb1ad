"""Results as remotes keep them. Of a result that is remade, a remote has digests of files alone.

The files in the output directories of such an action stay on the machine that made them: they are large, and making
them again is faster than moving them. What needs them only has to know their digests, until it runs. So in the shared
form of the result each of these directories is a file, its Tree, and the result's metadata name it. To servers, and to
all that inspects stores, this is a complete result with small files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mlcbuild.cache import reapi
from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import Action, CachePolicy
from mlcbuild.engine.executor import FileEntry

_REMADE_TYPE_URL = "type.mlcbuild.dev/RemadeDirectory"


def marks_of(action: Action) -> tuple[reapi.AnyMessage, ...]:
    """What the metadata of this action's results say of directories that are remade."""
    if action.cache is not CachePolicy.REMADE:
        return ()
    return tuple(
        reapi.AnyMessage(type_url=_REMADE_TYPE_URL, value=path.removesuffix("/").encode("utf-8"))
        for path in action.outputs
        if path.endswith("/")
    )


def remade_directories(result: reapi.ActionResult) -> frozenset[str]:
    """The paths of directories whose files no remote has, without `/`."""
    metadata = result.execution_metadata
    if metadata is None:
        return frozenset()
    found = (item.value for item in metadata.auxiliary_metadata if item.type_url == _REMADE_TYPE_URL)
    return frozenset(path.decode("utf-8", "replace") for path in found)


def listed_trees(result: reapi.ActionResult) -> dict[str, Digest]:
    """Path → Tree of each directory that is a file in this result, which is in its shared form."""
    remade = remade_directories(result)
    return {file.path: file.digest for file in result.output_files if file.path in remade} if remade else {}


def shared_form(result: reapi.ActionResult) -> reapi.ActionResult:
    """The result for a remote: itself, unless something of it is remade."""
    remade = remade_directories(result)
    if not remade:
        return result
    listed = [
        reapi.OutputFile(path=directory.path, digest=directory.tree_digest)
        for directory in result.output_directories
        if directory.path in remade
    ]
    return replace(
        result,
        output_files=tuple(sorted((*result.output_files, *listed), key=lambda file: file.path)),
        output_directories=tuple(each for each in result.output_directories if each.path not in remade),
    )


def shared_files(result: reapi.ActionResult, outputs: Iterable[FileEntry]) -> list[Digest]:
    """What a remote is sent of these outputs: their digests, without those that are remade, and the Trees of these."""
    remade = remade_directories(result)
    if not remade:
        return [entry.digest for entry in outputs]
    folders = tuple(f"{path}/" for path in sorted(remade))
    trees = [each.tree_digest for each in result.output_directories if each.path in remade]
    sent = [entry.digest for entry in outputs if not entry.path.startswith(folders)]
    return [*sent, *trees, *listed_trees(result).values()]


def is_remade(action: Action, path: str) -> bool:
    """Whether an output of an action lies in a directory that is remade."""
    return action.cache is CachePolicy.REMADE and path not in action.outputs


def remade_among(files: Iterable[FileEntry], missing: Iterable[Digest]) -> tuple[Digest, ...]:
    """Those of the missing blobs that no remote is to be asked for."""
    gone = set(missing)
    remade = {entry.digest for entry in files if entry.is_remade} if gone else set()
    return tuple(sorted(gone & remade))


def kept_files(action: Action, outputs: Sequence[FileEntry]) -> list[Digest]:
    """The digests of those outputs without which a result is of no use: all, but those that are remade."""
    return [entry.digest for entry in outputs if not is_remade(action, entry.path)]
