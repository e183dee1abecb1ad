"""A store looked at whole: every blob against its checksum and its name, every result with all that it names.

What is damaged is set aside, so that the next build makes it again.
"""

# ruff: noqa: PTH103, PTH104, PTH123
# Paths are strings here: making a Path costs more than the system call that it is for.

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.cache import integrity
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.inventory import Blob, Inventory, Progress, Result, no_progress, take_inventory
from mlcbuild.cache.reapi import ActionResult, Tree

_CHUNK_BYTES = 256 << 10
_MOST_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Damage:
    """A file that was set aside: a `blob` or a `result`, and what is wrong with it."""

    kind: str
    hash: str
    reason: str


@dataclass(slots=True, kw_only=True)
class Verified:
    """What was looked at, and found. `lacking` are results that name blobs which are not here, with how many.

    Such a result is no damage: a remote may have its blobs, and a build that needs them makes them.
    """

    blobs: int = 0
    results: int = 0
    bytes: int = 0
    foreign: int = 0
    damaged: list[Damage] = field(default_factory=list)
    lacking: dict[str, int] = field(default_factory=dict)


def verify(root: Path, base: Path, function: DigestFunction, progress: Progress = no_progress) -> Verified:
    """Read everything in the store of one function. Builds may go on meanwhile. Raises OSError."""
    inventory = take_inventory(base, function, progress)
    store = DiskStore(root, function)
    found = Verified(foreign=len(inventory.foreign))
    total = sum(blob.size_bytes for blob in inventory.blobs.values())
    largest_first = sorted(inventory.blobs.values(), key=lambda blob: -blob.size_bytes)
    with ThreadPoolExecutor(min(_MOST_THREADS, len(os.sched_getaffinity(0)))) as threads:
        for blob, reason in zip(
            largest_first, threads.map(lambda blob: _problem(base, function, blob), largest_first), strict=True
        ):
            progress("verifying blobs", found.bytes, total)
            found.blobs += 1
            found.bytes += blob.size_bytes
            if reason:
                store.set_aside(blob.hash)
                found.damaged.append(Damage(kind="blob", hash=blob.hash, reason=reason))
                del inventory.blobs[blob.hash]
    for result in inventory.results.values():
        progress("verifying results", found.results, len(inventory.results))
        found.results += 1
        _verify_result(inventory, result, found)
    found.damaged.sort()
    return found


def _problem(base: Path, function: DigestFunction, blob: Blob) -> str:
    """What is wrong with a blob's file; "" for nothing, and for one that has gone."""
    import xxhash

    hasher, checksum = function.hasher(), xxhash.xxh3_128()
    try:
        with open(f"{base}/cas/{blob.hash[:2]}/{blob.hash}", "rb", buffering=0) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                hasher.update(chunk)
                checksum.update(chunk)
            recorded = integrity.attached(stream.fileno(), base / "checksums" / blob.hash[:2] / blob.hash)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    if hasher.hexdigest() != blob.hash:
        return "its content is not what its name says"
    if recorded not in (None, checksum.digest()):
        return "its checksum is wrong"
    return ""


def _verify_result(inventory: Inventory, result: Result, found: Verified) -> None:
    path = f"{inventory.base}/ac/{result.hash[:2]}/{result.hash}"
    try:
        with open(path, "rb", buffering=0) as stream:
            data = stream.readall()
    except FileNotFoundError:
        return
    except OSError as error:
        _set_result_aside(inventory.base, path, result, found, error.strerror or str(error))
        return
    body, checksum = data[: -integrity.CHECKSUM_BYTES], data[-integrity.CHECKSUM_BYTES :]
    if integrity.checksum_of_bytes(body) != checksum:
        _set_result_aside(inventory.base, path, result, found, "its checksum is wrong")
        return
    try:
        decoded = ActionResult.decode(body)
        if decoded.exit_code:
            raise ValueError("it is that of an action that failed")
        for directory in decoded.output_directories:
            _check_tree(inventory, directory.tree_digest.hash)
    except ValueError as error:
        _set_result_aside(inventory.base, path, result, found, str(error))
        return
    lacking = [digest_hash for digest_hash in inventory.lacking(result) if _is_absent(inventory, digest_hash)]
    if lacking:
        found.lacking[result.hash] = len(lacking)


def _check_tree(inventory: Inventory, tree_hash: str) -> None:
    """Raises ValueError for a blob that is there and no Tree."""
    with contextlib.suppress(OSError):
        Tree.decode((inventory.base / "cas" / tree_hash[:2] / tree_hash).read_bytes())


def _is_absent(inventory: Inventory, digest_hash: str) -> bool:
    """Asked again: a build may have stored the blob after the blobs were listed."""
    empty = inventory.function.of_bytes(b"").hash
    return digest_hash != empty and not (inventory.base / "cas" / digest_hash[:2] / digest_hash).is_file()


def _set_result_aside(base: Path, path: str, result: Result, found: Verified, reason: str) -> None:
    with contextlib.suppress(OSError):
        os.makedirs(f"{base}/corrupt", exist_ok=True)
        os.rename(path, f"{base}/corrupt/{result.hash}.result")
    found.damaged.append(Damage(kind="result", hash=result.hash, reason=reason))


def together(each: Iterable[Verified]) -> Verified:
    """The findings of several stores as one."""
    all_found = Verified()
    for found in each:
        all_found.blobs += found.blobs
        all_found.results += found.results
        all_found.bytes += found.bytes
        all_found.foreign += found.foreign
        all_found.damaged += found.damaged
        all_found.lacking |= found.lacking
    return all_found
