"""Garbage collection: what is removed when a store is too large or too old, while builds go on.

The least recently used goes first: a result together with the blobs that only it names, a blob that no result names, a
file in quarantine. Results are removed before blobs, so a collection that is killed leaves blobs without results, but
no result without its blobs. Nothing is removed that a running build uses (see `mlcbuild.cache.leases`).
"""

# ruff: noqa: PTH108, PTH116
# Paths are strings here, because creating a Path costs more than the system call it is used for.

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from mlcbuild.cache.inventory import (
    Blob,
    Inventory,
    Leftover,
    Progress,
    Result,
    bases,
    no_progress,
    progress_in,
    take_inventory,
)
from mlcbuild.cache.leases import Leases, collection_lock
from mlcbuild.cache.temporaries import remove_abandoned

_REMOVED_AT_ONCE = 512
_A_THREAD = 32
_THREADS = _REMOVED_AT_ONCE // _A_THREAD  # A removal waits for a file server, or for the disk to discard freed blocks.
_PAUSE_SECONDS = 0.002  # between batches: longer than the interval in which builds poll for the removal lock

Item = Blob | Result | Leftover
_Removable = TypeVar("_Removable", Blob, Result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may stay: at most `max_bytes` on the disk, used within `max_age_seconds`. None means no limit."""

    max_bytes: int | None = None
    max_age_seconds: float | None = None

    def __post_init__(self) -> None:
        for value in (self.max_bytes, self.max_age_seconds):
            if value is not None and value < 0:
                raise ValueError(f"a limit cannot be negative: {value}")


@dataclass(slots=True, kw_only=True)
class Plan:
    """What to remove from one store. `named_blobs` are those that only results in this plan name."""

    inventory: Inventory
    results: list[Result] = field(default_factory=list)
    named_blobs: list[Blob] = field(default_factory=list)
    unnamed_blobs: list[Blob] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)

    @property
    def freed_bytes(self) -> int:
        groups: tuple[Sequence[Item], ...] = (self.results, self.named_blobs, self.unnamed_blobs, self.leftovers)
        return sum(item.stored_bytes for group in groups for item in group)


@dataclass(slots=True, kw_only=True)
class CollectionReport:
    """What a collection did. Bytes are those on the disk.

    `failed` is the number of files that could not be removed, `reason` is why the first of them could not. `over_bytes`
    is how far the store is still above the limit.
    """

    results: int = 0
    blobs: int = 0
    leftovers: int = 0
    failed: int = 0
    reason: str = ""
    freed_bytes: int = 0
    kept_bytes: int = 0
    over_bytes: int = 0

    def count(self, outcome: str | None, item: Item) -> bool:
        """Count one removal. Answer whether the item was removed. A failed removal does not stop the collection."""
        if outcome:
            self.failed += 1
            self.reason = self.reason or outcome
        elif outcome is not None:
            self.freed_bytes += item.stored_bytes
        return outcome == ""


def plan(inventories: Sequence[Inventory], limits: Limits, *, now: int, leased: Collection[str] = ()) -> list[Plan]:
    """What to remove so that all stores together are within the limits at `now` (nanoseconds of the wall clock).

    Damaged results are removed in any case. What is `leased`, or named by a leased result, stays.
    """
    plans = [Plan(inventory=inventory) for inventory in inventories]
    total = sum(inventory.stored_bytes for inventory in inventories)
    oldest = None if limits.max_age_seconds is None else now - int(limits.max_age_seconds * 1e9)
    references = [{blob.hash: blob.references for blob in inventory.blobs.values()} for inventory in inventories]
    candidates: list[tuple[int, str, int, int, Item]] = []
    for index, inventory in enumerate(inventories):
        items: Iterable[Item] = (*inventory.results.values(), *inventory.unnamed(), *inventory.quarantined)
        for item in items:
            used, name = (item.changed, item.path) if isinstance(item, Leftover) else (item.used, item.hash)
            candidates.append((used, name, index, len(candidates), item))
    for used, _, index, _, item in sorted(candidates):
        is_over = (limits.max_bytes is not None and total > limits.max_bytes) or (oldest is not None and used < oldest)
        is_damaged = isinstance(item, Result) and item.references is None
        if not (is_over or is_damaged):
            continue
        if isinstance(item, Leftover):
            plans[index].leftovers.append(item)
        elif item.hash in leased:
            continue
        elif isinstance(item, Blob):
            plans[index].unnamed_blobs.append(item)
        else:
            plans[index].results.append(item)
            freed = _freed_with(item, inventories[index], references[index], leased)
            plans[index].named_blobs += freed
            total -= sum(blob.stored_bytes for blob in freed)
        total -= item.stored_bytes
    return plans


def collect(
    root: Path,
    limits: Limits,
    *,
    progress: Progress = no_progress,
    on_wait: Callable[[], object] = lambda: None,
    now: Callable[[], int] = time.time_ns,
) -> CollectionReport:
    """Bring all stores below `root` within the limits. `on_wait` is called if another collection runs; it is waited
    for.

    Raises OSError for a store that cannot be read or changed.
    """
    report = CollectionReport()
    with contextlib.ExitStack() as stack:
        stores = [
            (base, function, stack.enter_context(collection_lock(base, on_wait=on_wait)))
            for base, function in bases(root)
        ]
        for base, _, _ in stores:
            with contextlib.suppress(FileNotFoundError):
                remove_abandoned(base / "tmp")
        progresses = [progress_in(progress, function, len(stores)) for _, function, _ in stores]
        inventories = [
            take_inventory(base, function, progress_of_store)
            for (base, function, _), progress_of_store in zip(stores, progresses, strict=True)
        ]
        leased: set[str] = set()
        for _, _, leases in stores:
            with leases.removal_lock():
                leased |= leases.hashes()
        plans = plan(inventories, limits, now=now(), leased=leased)
        threads = stack.enter_context(ThreadPoolExecutor(_THREADS))
        for each, (_, _, leases), progress_of_store in zip(plans, stores, progresses, strict=True):
            _carry_out(each, leases, threads, report, progress_of_store)
    report.kept_bytes = sum(inventory.stored_bytes for inventory in inventories) - report.freed_bytes
    if limits.max_bytes is not None:
        report.over_bytes = max(0, report.kept_bytes - limits.max_bytes)
    return report


def _freed_with(
    result: Result, inventory: Inventory, references: dict[str, int], leased: Collection[str]
) -> list[Blob]:
    """Drop a result's references. Answer the blobs that have none left."""
    freed = []
    for digest_hash in result.references.all() if result.references else ():
        if digest_hash in references:
            references[digest_hash] -= 1
            if not references[digest_hash] and digest_hash not in leased:
                freed.append(inventory.blobs[digest_hash])
    return freed


def _carry_out(
    planned: Plan, leases: Leases, threads: ThreadPoolExecutor, report: CollectionReport, tell: Progress
) -> None:
    inventory = planned.inventory
    base = inventory.base

    def take_result(result: Result) -> str | None:
        path = f"{base}/ac/{result.hash[:2]}/{result.hash}"
        return _remove(path) if result.hash not in leases and _is_as_seen(path, result) else None

    removed = [
        result
        for result, outcome in _taken(planned.results, take_result, leases, threads, tell, "removing results")
        if report.count(outcome, result)
    ]
    report.results += len(removed)
    list(threads.map(_make_durable, {f"{base}/ac/{result.hash[:2]}" for result in removed}))

    has_index = (base / "checksums").is_dir()

    def take_blob(blob: Blob) -> str | None:
        if blob.hash in leases:
            return None
        name = f"{blob.hash[:2]}/{blob.hash}"
        # The checksum goes first: a blob without one is still verified by its name, an orphan checksum would stay for
        # ever.
        return (has_index and _remove(f"{base}/checksums/{name}")) or _remove(f"{base}/cas/{name}")

    still = _still_named(inventory, removed)
    going = [blob for blob in (*planned.named_blobs, *planned.unnamed_blobs) if blob.hash not in still]
    for blob, outcome in _taken(going, take_blob, leases, threads, tell, "removing blobs"):
        report.blobs += report.count(outcome, blob)
    for leftover in planned.leftovers:
        report.leftovers += report.count(_remove(leftover.path), leftover)


def _taken(
    items: Sequence[_Removable],
    take: Callable[[_Removable], str | None],
    leases: Leases,
    threads: ThreadPoolExecutor,
    tell: Progress,
    what: str,
) -> Iterator[tuple[_Removable, str | None]]:
    """Remove items in batches under the removal lock. Yields each item with its outcome."""

    def take_all(part: Sequence[_Removable]) -> list[str | None]:
        return [take(item) for item in part]

    for start in range(0, len(items), _REMOVED_AT_ONCE):
        tell(what, start, len(items))
        batch = items[start : start + _REMOVED_AT_ONCE]
        parts = [batch[first : first + _A_THREAD] for first in range(0, len(batch), _A_THREAD)]
        with leases.removal_lock():
            outcomes = [outcome for part in threads.map(take_all, parts) for outcome in part]
        yield from zip(batch, outcomes, strict=True)
        time.sleep(_PAUSE_SECONDS)


def _still_named(inventory: Inventory, removed: Sequence[Result]) -> set[str]:
    """The blobs that are named by results which were seen and not removed."""
    gone = {result.hash for result in removed}
    return {
        digest_hash
        for result in inventory.results.values()
        if result.hash not in gone and result.references
        for digest_hash in result.references.all()
    }


def _is_as_seen(path: str, result: Result) -> bool:
    """False if the result was used, replaced or removed since the inventory."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return (status.st_ino, status.st_mtime_ns) == (result.inode, result.used)


def _remove(path: str) -> str | None:
    """ "" if the file was removed, None if there was none, else the reason why it could not be removed."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return None
    except IsADirectoryError:  # It was in a file's place, and is in quarantine.
        shutil.rmtree(path, ignore_errors=True)
        return f"{path}: the folder cannot be removed" if Path(path).is_dir() else ""
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return ""


def _make_durable(folder: str) -> None:
    """Wait until removals are on the disk: after a power failure no result may reappear without its blobs."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
