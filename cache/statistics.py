"""Statistics of a store: amounts by kind and by age, and the largest blobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from mlcbuild.cache import integrity
from mlcbuild.cache.inventory import Blob, Inventory, Result
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.regular_files import read_regular

_DAY_NANOSECONDS = 86_400 * 1_000_000_000
AGES = (("last day", 1), ("last week", 7), ("last 30 days", 30), ("before", None))
"""Names of ages, with their upper ends in days. Each excludes the ones before it."""
KINDS = ("results", "outputs", "directories", "logs", "keys", "unnamed", "quarantined", "temporary", "foreign")
"""What a file is. "directories" are Trees of outputs, "keys" describe actions, "unnamed" are blobs that no result
names. A blob of several kinds counts as the first of them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A number of files, and their bytes on the disk."""

    files: int = 0
    bytes: int = 0

    def with_file(self, stored_bytes: int) -> Amount:
        return Amount(files=self.files + 1, bytes=self.bytes + stored_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeBlob:
    """One of the largest blobs: how many results name it, and as which output the latest does ("" for none)."""

    hash: str
    size_bytes: int
    results: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Amounts by the names in KINDS and AGES. A blob is as old as the latest use of a result that names it."""

    kinds: dict[str, Amount]
    ages: dict[str, Amount]
    largest: tuple[LargeBlob, ...]
    lacking: int  # results that name blobs which are not in the store

    @property
    def bytes(self) -> int:
        """The size of everything but foreign files."""
        return sum(amount.bytes for kind, amount in self.kinds.items() if kind != "foreign")


def statistics_of(inventories: Sequence[Inventory], *, now: int, largest: int = 5) -> Statistics:
    """Statistics of several stores together, at `now` (nanoseconds of the wall clock)."""
    kinds: dict[str, Amount] = defaultdict(Amount)
    ages: dict[str, Amount] = defaultdict(Amount)
    blobs: list[tuple[Blob, Inventory]] = []
    for inventory in inventories:
        used: dict[str, int] = {}
        kind_of: dict[str, str] = {}
        for result in sorted(inventory.results.values(), key=lambda result: result.used):
            kinds["results"] = kinds["results"].with_file(result.stored_bytes)
            age = _age(result.used, now)
            ages[age] = ages[age].with_file(result.stored_bytes)
            if result.references is None:
                continue
            used.update(dict.fromkeys(result.references.all(), result.used))
            named = (result.references.outputs, result.references.trees, result.references.log, result.references.key)
            for kind, hashes in zip(KINDS[1:5], named, strict=True):
                for digest_hash in hashes:
                    known = kind_of.get(digest_hash, kind)
                    kind_of[digest_hash] = min(known, kind, key=KINDS.index)
        for blob in inventory.blobs.values():
            kind = kind_of.get(blob.hash, "unnamed")
            kinds[kind] = kinds[kind].with_file(blob.stored_bytes)
            age = _age(used.get(blob.hash, blob.used), now)
            ages[age] = ages[age].with_file(blob.stored_bytes)
            blobs.append((blob, inventory))
        rest = (
            ("quarantined", inventory.quarantined),
            ("temporary", inventory.temporary),
            ("foreign", inventory.foreign),
        )
        for kind, leftovers in rest:
            for leftover in leftovers:
                kinds[kind] = kinds[kind].with_file(leftover.stored_bytes)
    blobs.sort(key=lambda pair: (-pair[0].size_bytes, pair[0].hash))
    return Statistics(
        kinds={kind: kinds[kind] for kind in KINDS},
        ages={name: ages[name] for name, _ in AGES},
        largest=tuple(_described(blob, inventory) for blob, inventory in blobs[:largest]),
        lacking=sum(bool(inventory.lacking(result)) for inventory in inventories for result in _sound(inventory)),
    )


def _sound(inventory: Inventory) -> list[Result]:
    return [result for result in inventory.results.values() if result.references is not None]


def _age(used: int, now: int) -> str:
    days = (now - used) / _DAY_NANOSECONDS
    return next(name for name, end in AGES if end is None or days < end)


def _described(blob: Blob, inventory: Inventory) -> LargeBlob:
    naming = [result for result in _sound(inventory) if result.references and blob.hash in result.references.outputs]
    newest = max(naming, key=lambda result: (result.used, result.hash), default=None)
    return LargeBlob(
        hash=blob.hash,
        size_bytes=blob.size_bytes,
        results=blob.references,
        path=_path_in(inventory, newest, blob.hash) if newest else "",
    )


def _path_in(inventory: Inventory, result: Result, digest_hash: str) -> str:
    """The path of the output that a result names a blob as, or of the directory that contains it."""
    try:
        data = read_regular(inventory.base / "ac" / result.hash[:2] / result.hash)
        decoded = ActionResult.decode(data[: -integrity.CHECKSUM_BYTES])
    except (OSError, ValueError):
        return ""
    files = [file.path for file in decoded.output_files if file.digest.hash == digest_hash]
    return next(iter([*files, *(f"{directory.path}/" for directory in decoded.output_directories)]), "")
