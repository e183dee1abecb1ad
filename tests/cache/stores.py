"""Small stores for tests: results with outputs and keys as builds publish them, and what must hold of any store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mlcbuild.cache import integrity
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.eviction import Limits
from mlcbuild.cache.merkle import TreeFile, input_root, tree_of
from mlcbuild.cache.reapi import (
    Action,
    ActionResult,
    AnyMessage,
    Command,
    ExecutedActionMetadata,
    OutputDirectory,
    OutputFile,
    Tree,
    encode_digest,
)

BLAKE3 = DigestFunction.BLAKE3
HOUR = 3600 * 1_000_000_000
DAY = 24 * HOUR
NOTHING = Limits(max_bytes=0)
EMPTY = BLAKE3.of_bytes(b"").hash


def publish(
    store: DiskStore,
    name: str,
    *,
    files: Sequence[bytes] = (),
    directory: Sequence[bytes] = (),
    log: bytes = b"",
    sources: Sequence[bytes] = (),
) -> Digest:
    """Store the result of an action of that name with its outputs, sources and key; answers the key."""
    inputs = [TreeFile(f"src/{index}", store.put_bytes(data, durable=False)) for index, data in enumerate(sources)]
    root = input_root(inputs, store.function)
    command = Command(arguments=(name,)).encode()
    action = Action(command_digest=store.function.of_bytes(command), input_root_digest=root.digest).encode()
    key = store.function.of_bytes(action)
    outputs = [
        OutputFile(path=f"out/{index}", digest=store.put_bytes(data, durable=False)) for index, data in enumerate(files)
    ]
    directories = []
    if directory:
        inside = [TreeFile(f"d/{i}", store.put_bytes(data, durable=False)) for i, data in enumerate(directory)]
        tree = store.put_bytes(tree_of(inside, store.function).encode(), durable=False)
        directories.append(OutputDirectory(path="dir", tree_digest=tree))
    for data in (action, command, *(data for _, data in root.directories)):
        store.put_bytes(data, durable=False)
    breakdown = store.put_bytes(f"breakdown of {name}".encode(), durable=False)
    store.put(
        key,
        ActionResult(
            output_files=tuple(outputs),
            output_directories=tuple(directories),
            stdout_digest=store.put_bytes(log, durable=False) if log else None,
            execution_metadata=ExecutedActionMetadata(
                worker="w", auxiliary_metadata=(AnyMessage(type_url="breakdown", value=encode_digest(breakdown)),)
            ),
        ),
    )
    return key


def base_of(store: DiskStore) -> Path:
    return store.root / "v1" / store.function.value


def result_file(store: DiskStore, key: Digest) -> Path:
    return base_of(store) / "ac" / key.hash[:2] / key.hash


def blob_file(store: DiskStore, digest: Digest) -> Path:
    return base_of(store) / "cas" / digest.hash[:2] / digest.hash


def used_at(store: DiskStore, key: Digest, nanoseconds: int) -> None:
    """Say when a result was used last."""
    os.utime(result_file(store, key), ns=(nanoseconds, nanoseconds))


def contents(base: Path, folder: str) -> set[str]:
    return {path.name for path in (base / folder).glob("*/*")}


def check_store(base: Path, function: DigestFunction = BLAKE3) -> int:
    """Every blob is what its name says, every result is whole and has all that it needs; answers how many there are.

    Written without the code that evicts, so that it can disagree with it.
    """
    blobs = contents(base, "cas")
    for name in blobs:
        data = (base / "cas" / name[:2] / name).read_bytes()
        assert function.of_bytes(data).hash == name
    results = [path for path in (base / "ac").glob("*/*") if len(path.name) == 64]
    for path in results:
        data = path.read_bytes()
        body = data[: -integrity.CHECKSUM_BYTES]
        assert integrity.checksum_of_bytes(body) == data[-integrity.CHECKSUM_BYTES :]
        result = ActionResult.decode(body)
        needed = {file.digest.hash for file in result.output_files}
        if result.stdout_digest:
            needed.add(result.stdout_digest.hash)
        for directory in result.output_directories:
            needed.add(directory.tree_digest.hash)
            tree = Tree.decode(
                (base / "cas" / directory.tree_digest.hash[:2] / directory.tree_digest.hash).read_bytes()
            )
            for each in (tree.root, *tree.children):
                needed |= {node.digest.hash for node in each.files}
        lacking = needed - blobs - {function.of_bytes(b"").hash}
        assert not lacking, f"the result {path.name} names blobs that are not there"
    return len(results)


def there(store: DiskStore, data: bytes) -> bool:
    return blob_file(store, BLAKE3.of_bytes(data)).exists()
