"""Which results and blobs go when a store is too large or too old, and their removal beside running builds.

What was used longest ago goes first: a result with the blobs that no other result names, a blob that no result names
by itself, a file that was set aside. Results are removed before blobs, so whoever is killed in between leaves blobs
without results and never a result without its blobs. What a running build holds stays (see `mlcbuild.cache.holding`).
"""

# ruff: noqa: PTH108, PTH116
# Paths are strings here: making a Path costs more than the system call that it is for.

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from mlcbuild.cache.holding import Holds, collecting
from mlcbuild.cache.inventory import (
    Blob,
    Inventory,
    Leftover,
    Progress,
    Result,
    bases,
    no_progress,
    take_inventory,
)
from mlcbuild.cache.temporaries import remove_abandoned

_REMOVED_AT_ONCE = 512
_A_THREAD = 32
_THREADS = _REMOVED_AT_ONCE // _A_THREAD  # A removal waits for a server, or for a disk that is told of freed blocks.
_PAUSE_SECONDS = 0.002  # between removals: longer than builds sleep that wait to write down what they hold

Item = Blob | Result | Leftover
_Removable = TypeVar("_Removable", Blob, Result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may stay: at most `max_bytes` on the disk, used within `max_age_seconds`; None does not limit."""

    max_bytes: int | None = None
    max_age_seconds: float | None = None

    def __post_init__(self) -> None:
        for value in (self.max_bytes, self.max_age_seconds):
            if value is not None and value < 0:
                raise ValueError(f"a limit cannot be negative: {value}")


@dataclass(slots=True, kw_only=True)
class Plan:
    """What is to go from one store. `named_blobs` are those that only results in this plan name."""

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
class Collected:
    """What came of a collection; bytes as on the disk.

    `failed` files could not be removed, the first of them for `reason`. `over_bytes` are more than the limit and stay.
    """

    results: int = 0
    blobs: int = 0
    leftovers: int = 0
    failed: int = 0
    reason: str = ""
    freed_bytes: int = 0
    kept_bytes: int = 0
    over_bytes: int = 0

    def counts(self, outcome: str | None, item: Item) -> bool:
        """Whether the item was removed, which is noted. One that cannot be removed is counted, and stops nothing."""
        if outcome:
            self.failed += 1
            self.reason = self.reason or outcome
        elif outcome is not None:
            self.freed_bytes += item.stored_bytes
        return outcome == ""


def plan(inventories: Sequence[Inventory], limits: Limits, *, now: int, held: Collection[str] = ()) -> list[Plan]:
    """What has to go so that all stores together keep the limits at `now` (nanoseconds of the wall clock).

    Damaged results go whatever the limits are. What is `held`, and what a held result names, stays.
    """
    plans = [Plan(inventory=inventory) for inventory in inventories]
    total = sum(inventory.stored_bytes for inventory in inventories)
    oldest = None if limits.max_age_seconds is None else now - int(limits.max_age_seconds * 1e9)
    references = [{blob.hash: blob.references for blob in inventory.blobs.values()} for inventory in inventories]
    candidates: list[tuple[int, str, int, int, Item]] = []
    for index, inventory in enumerate(inventories):
        items: Iterable[Item] = (*inventory.results.values(), *inventory.unnamed(), *inventory.set_aside)
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
        elif item.hash in held:
            continue
        elif isinstance(item, Blob):
            plans[index].unnamed_blobs.append(item)
        else:
            plans[index].results.append(item)
            freed = _freed_with(item, inventories[index], references[index], held)
            plans[index].named_blobs += freed
            total -= sum(blob.stored_bytes for blob in freed)
        total -= item.stored_bytes
    return plans


def collect(
    root: Path,
    limits: Limits,
    *,
    progress: Progress = no_progress,
    waits: Callable[[], object] = lambda: None,
    now: Callable[[], int] = time.time_ns,
) -> Collected:
    """Bring all stores below `root` within the limits. One at a time; `waits` is called where another one runs.

    Raises OSError where a store cannot be read or changed.
    """
    collected = Collected()
    with contextlib.ExitStack() as stack:
        stores = [
            (base, function, stack.enter_context(collecting(base, waits=waits))) for base, function in bases(root)
        ]
        for base, _, _ in stores:
            with contextlib.suppress(FileNotFoundError):
                remove_abandoned(base / "tmp")
        inventories = [take_inventory(base, function, progress) for base, function, _ in stores]
        held: set[str] = set()
        for _, _, holds in stores:
            with holds.removing():
                held |= holds.hashes()
        plans = plan(inventories, limits, now=now(), held=held)
        threads = stack.enter_context(ThreadPoolExecutor(_THREADS))
        for each, (_, _, holds) in zip(plans, stores, strict=True):
            _carry_out(each, holds, threads, collected, progress)
    collected.kept_bytes = sum(inventory.stored_bytes for inventory in inventories) - collected.freed_bytes
    if limits.max_bytes is not None:
        collected.over_bytes = max(0, collected.kept_bytes - limits.max_bytes)
    return collected


def _freed_with(result: Result, inventory: Inventory, references: dict[str, int], held: Collection[str]) -> list[Blob]:
    """Take a result's references away; the blobs that then have none."""
    freed = []
    for digest_hash in result.references.all() if result.references else ():
        if digest_hash in references:
            references[digest_hash] -= 1
            if not references[digest_hash] and digest_hash not in held:
                freed.append(inventory.blobs[digest_hash])
    return freed


def _carry_out(planned: Plan, holds: Holds, threads: ThreadPoolExecutor, collected: Collected, tell: Progress) -> None:
    inventory = planned.inventory
    base = inventory.base

    def take_result(result: Result) -> str | None:
        path = f"{base}/ac/{result.hash[:2]}/{result.hash}"
        return _remove(path) if result.hash not in holds and _is_as_seen(path, result) else None

    removed = [
        result
        for result, outcome in _taken(planned.results, take_result, holds, threads, tell, "removing results")
        if collected.counts(outcome, result)
    ]
    collected.results += len(removed)
    list(threads.map(_make_durable, {f"{base}/ac/{result.hash[:2]}" for result in removed}))

    has_index = (base / "checksums").is_dir()

    def take_blob(blob: Blob) -> str | None:
        if blob.hash in holds:
            return None
        name = f"{blob.hash[:2]}/{blob.hash}"
        # A blob without its checksum is still known by its name; a checksum without its blob would stay for ever.
        return (has_index and _remove(f"{base}/checksums/{name}")) or _remove(f"{base}/cas/{name}")

    still = _still_named(inventory, removed)
    going = [blob for blob in (*planned.named_blobs, *planned.unnamed_blobs) if blob.hash not in still]
    for blob, outcome in _taken(going, take_blob, holds, threads, tell, "removing blobs"):
        collected.blobs += collected.counts(outcome, blob)
    for leftover in planned.leftovers:
        collected.leftovers += collected.counts(_remove(leftover.path), leftover)


def _taken(
    items: Sequence[_Removable],
    take: Callable[[_Removable], str | None],
    holds: Holds,
    threads: ThreadPoolExecutor,
    tell: Progress,
    what: str,
) -> Iterator[tuple[_Removable, str | None]]:
    """Each item with what came of taking it away, a batch of them at a time while nobody can begin to hold one."""

    def take_all(part: Sequence[_Removable]) -> list[str | None]:
        return [take(item) for item in part]

    for start in range(0, len(items), _REMOVED_AT_ONCE):
        tell(what, start, len(items))
        batch = items[start : start + _REMOVED_AT_ONCE]
        parts = [batch[first : first + _A_THREAD] for first in range(0, len(batch), _A_THREAD)]
        with holds.removing():
            outcomes = [outcome for part in threads.map(take_all, parts) for outcome in part]
        yield from zip(batch, outcomes, strict=True)
        time.sleep(_PAUSE_SECONDS)


def _still_named(inventory: Inventory, removed: Sequence[Result]) -> set[str]:
    """The blobs that a result names which was seen and is still there."""
    gone = {result.hash for result in removed}
    return {
        digest_hash
        for result in inventory.results.values()
        if result.hash not in gone and result.references
        for digest_hash in result.references.all()
    }


def _is_as_seen(path: str, result: Result) -> bool:
    """False for a result that was used, replaced or removed since."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return (status.st_ino, status.st_mtime_ns) == (result.inode, result.used)


def _remove(path: str) -> str | None:
    """ "" where it is removed, None where there is no such file, and why where it cannot be."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return ""


def _make_durable(folder: str) -> None:
    """Wait until removals are on the disk: after a power failure no result may be back whose blobs are not."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
