"""Results in transfer: small outputs are inlined, and received results are checked before use."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.merkle import files_of
from mlcbuild.cache.reapi import Action, ActionResult, OutputFile, Tree, check_name, decode_digest
from mlcbuild.cache.store import BlobMissingError, BlobStore

INLINE_BYTES = 16 << 10  # of one output
INLINE_BYTES_A_RESULT = 256 << 10


def with_contents(result: ActionResult, store: BlobStore) -> ActionResult:
    """The result with the bytes of its small outputs, smallest first, as far as they fit.

    Outputs that already have their bytes (manifests) keep them. Raises like `store.read`.
    """
    inlined: dict[int, OutputFile] = {}
    left = INLINE_BYTES_A_RESULT
    candidates = [
        (file.digest.size_bytes, index, file)
        for index, file in enumerate(result.output_files)
        if not file.contents and 0 < file.digest.size_bytes <= INLINE_BYTES
    ]
    for size, index, file in sorted(candidates, key=lambda candidate: candidate[:2]):
        if size > left:
            break
        inlined[index] = replace(file, contents=store.read(file.digest))
        left -= size
    if not inlined:
        return result
    files = tuple(inlined.get(index, file) for index, file in enumerate(result.output_files))
    return replace(result, output_files=files)


def take_contents(result: ActionResult, store: BlobStore) -> ActionResult:
    """Store inlined bytes, and return the result without them. Bytes that `with_contents` would not add are kept.

    A power failure may damage such a blob. The store's checksum shows that, and it can be downloaded again.
    `why_unusable` has checked the bytes. Raises like `store.put_bytes`.
    """
    files = []
    for file in result.output_files:
        if file.contents:
            store.put_bytes(file.contents, durable=False)
        files.append(replace(file, contents=b"") if file.digest.size_bytes <= INLINE_BYTES else file)
    return replace(result, output_files=tuple(files))


def why_unusable(result: ActionResult, function: DigestFunction) -> str:
    """Why a result cannot be used; "" if it can. `blobs_in_trees` checks its Trees."""
    if result.exit_code != 0:
        return f"its action failed with exit code {result.exit_code}"
    if result.output_symlinks:
        return f"it has a symbolic link, {result.output_symlinks[0].path!r}"
    files = [file.path for file in result.output_files]
    folders = [directory.path for directory in result.output_directories]
    for path in (*files, *folders):
        try:
            for name in path.split("/"):
                check_name(name)
        except ValueError:
            return f"an output is outside its directory: {path!r}"
    if len({*files, *folders}) != len(files) + len(folders):
        return "two outputs have the same path"
    for file in result.output_files:
        if file.contents and function.of_bytes(file.contents) != file.digest:
            return f"the inlined bytes of {file.path!r} are not those of {file.digest}"
    return ""


def blobs_in_trees(result: ActionResult, store: BlobStore) -> tuple[Digest, ...]:
    """The digests of all files in the result's output directories, whose Trees are in the store.

    Raises BlobMissingError, and ValueError for a Tree that is damaged or has paths outside itself.
    """
    digests = []
    for directory in result.output_directories:
        tree = Tree.decode(store.read(directory.tree_digest))
        digests += [file.digest for file in files_of(tree, store.function)]
    return tuple(dict.fromkeys(digests))


def blobs_in(result: ActionResult) -> tuple[Digest, ...]:
    """The digests that are in the result itself: output files, Trees, log."""
    logs = [digest for digest in (result.stdout_digest, result.stderr_digest) if digest is not None]
    return unique(
        *(file.digest for file in result.output_files),
        *(directory.tree_digest for directory in result.output_directories),
        *logs,
    )


def explanation_of(key: Digest, result: ActionResult, store: BlobStore) -> tuple[Digest, ...]:
    """The blobs that explain a key: the encoded Action, whose digest is the key, its Command if the store has the
    Action, and the blobs in the result's metadata, that is, the key's breakdown. Raises like `store.read`.

    The Directories of the inputs are not included. There may be very many, and the breakdown names each input.
    """
    digests = [key]
    if not store.missing([key]):
        with contextlib.suppress(ValueError, BlobMissingError):
            digests.append(Action.decode(store.read(key)).command_digest)
    metadata = result.execution_metadata
    for item in metadata.auxiliary_metadata if metadata else ():
        with contextlib.suppress(ValueError):
            digests.append(decode_digest(item.value))
    return unique(*digests)


def unique(*digests: Digest) -> tuple[Digest, ...]:
    return tuple(dict.fromkeys(digests))
