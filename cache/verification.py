"""Verification of a whole store: every blob against its checksum and name, every result and what it names.

Damaged files are moved to quarantine, and the next build makes them again.
"""

# ruff: noqa: PTH103, PTH104, PTH123
# Paths are strings here, because creating a Path costs more than the system call it is used for.

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
from mlcbuild.cache.quarantine import set_aside
from mlcbuild.cache.reapi import ActionResult, Tree

_CHUNK_BYTES = 256 << 10
_MOST_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Damage:
    """A file that was quarantined: its kind, `blob` or `result`, and what is wrong with it."""

    kind: str
    hash: str
    reason: str


@dataclass(slots=True, kw_only=True)
class VerificationReport:
    """What was verified and found. `lacking` maps results to how many blobs they name that are not in the store.

    Such a result is not damaged. A remote cache may have the blobs, and a build that needs them can make them.
    """

    blobs: int = 0
    results: int = 0
    bytes: int = 0
    foreign: int = 0
    damaged: list[Damage] = field(default_factory=list)
    lacking: dict[str, int] = field(default_factory=dict)


def verify(root: Path, base: Path, function: DigestFunction, progress: Progress = no_progress) -> VerificationReport:
    """Read everything in the store of one digest function. Builds may go on meanwhile. Raises OSError."""
    inventory = take_inventory(base, function, progress)
    store = DiskStore(root, function)
    found = VerificationReport(foreign=len(inventory.foreign))
    for misplaced in inventory.misplaced:
        set_aside(base, Path(misplaced.path))
        found.damaged.append(
            Damage(
                kind=misplaced.kind, hash=Path(misplaced.path).name, reason=f"there is {misplaced.what} in its place"
            )
        )
    total = sum(blob.size_bytes for blob in inventory.blobs.values())
    largest_first = sorted(inventory.blobs.values(), key=lambda blob: -blob.size_bytes)
    with ThreadPoolExecutor(min(_MOST_THREADS, len(os.sched_getaffinity(0)))) as threads:
        for blob, reason in zip(
            largest_first, threads.map(lambda blob: _damage_of(base, function, blob), largest_first), strict=True
        ):
            progress("verifying blobs", found.bytes, total)
            found.blobs += 1
            found.bytes += blob.size_bytes
            if reason:
                store.quarantine(blob.hash)
                found.damaged.append(Damage(kind="blob", hash=blob.hash, reason=reason))
                del inventory.blobs[blob.hash]
    for result in inventory.results.values():
        progress("verifying results", found.results, len(inventory.results))
        found.results += 1
        _verify_result(inventory, result, found)
    found.damaged.sort()
    return found


def _damage_of(base: Path, function: DigestFunction, blob: Blob) -> str:
    """What is wrong with a blob's file; "" if nothing is, or if it is gone."""
    import xxhash

    hasher, checksum = function.hasher(), xxhash.xxh3_128()
    try:
        with open(f"{base}/cas/{blob.hash[:2]}/{blob.hash}", "rb", buffering=0) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                hasher.update(chunk)
                checksum.update(chunk)
            recorded = integrity.read_recorded(stream.fileno(), base / "checksums" / blob.hash[:2] / blob.hash)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    if hasher.hexdigest() != blob.hash:
        return "its content does not match its name"
    if recorded not in (None, checksum.digest()):
        return "its checksum is wrong"
    return ""


def _verify_result(inventory: Inventory, result: Result, found: VerificationReport) -> None:
    path = f"{inventory.base}/ac/{result.hash[:2]}/{result.hash}"
    try:
        with open(path, "rb", buffering=0) as stream:
            data = stream.readall()
    except FileNotFoundError:
        return
    except OSError as error:
        _quarantine_result(inventory.base, path, result, found, error.strerror or str(error))
        return
    body, checksum = data[: -integrity.CHECKSUM_BYTES], data[-integrity.CHECKSUM_BYTES :]
    if integrity.checksum_of_bytes(body) != checksum:
        _quarantine_result(inventory.base, path, result, found, "its checksum is wrong")
        return
    try:
        decoded = ActionResult.decode(body)
        if decoded.exit_code:
            raise ValueError("it is the result of a failed action")
        for directory in decoded.output_directories:
            _check_tree(inventory, directory.tree_digest.hash)
    except ValueError as error:
        _quarantine_result(inventory.base, path, result, found, str(error))
        return
    lacking = [digest_hash for digest_hash in inventory.lacking(result) if _is_absent(inventory, digest_hash)]
    if lacking:
        found.lacking[result.hash] = len(lacking)


def _check_tree(inventory: Inventory, tree_hash: str) -> None:
    """Raises ValueError for a blob that exists and is not a Tree."""
    with contextlib.suppress(OSError):
        Tree.decode((inventory.base / "cas" / tree_hash[:2] / tree_hash).read_bytes())


def _is_absent(inventory: Inventory, digest_hash: str) -> bool:
    """Check again: a build may have stored the blob after the blobs were listed."""
    empty = inventory.function.of_bytes(b"").hash
    return digest_hash != empty and not (inventory.base / "cas" / digest_hash[:2] / digest_hash).is_file()


def _quarantine_result(base: Path, path: str, result: Result, found: VerificationReport, reason: str) -> None:
    with contextlib.suppress(OSError):
        os.makedirs(f"{base}/corrupt", exist_ok=True)
        os.rename(path, f"{base}/corrupt/{result.hash}.result")
    found.damaged.append(Damage(kind="result", hash=result.hash, reason=reason))


def merged(each: Iterable[VerificationReport]) -> VerificationReport:
    """The reports of several stores as one."""
    all_found = VerificationReport()
    for found in each:
        all_found.blobs += found.blobs
        all_found.results += found.results
        all_found.bytes += found.bytes
        all_found.foreign += found.foreign
        all_found.damaged += found.damaged
        all_found.lacking |= found.lacking
    return all_found
