"""The record behind the no-op check: whether a build has nothing to do, by stats alone.

After a successful build all that decided it is known: files and folders that were read, listed or looked for, the
results that were used, and the outputs that were placed. While the stat of each is the same, the same request has
nothing to do. The check says so without loading the workspace or computing a key. If anything differs, the build runs
as usual. Nothing else depends on this record.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from mlcbuild.cache.integrity import checksum_of_bytes
from mlcbuild.cache.last_use import mark_used
from mlcbuild.cache.stat_cache import RACY_NANOSECONDS, Identity, now_nanoseconds
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.engine.path_states import checksum_of, identities, settled_identities

_DIRECTORY = "no-op"
_KIND = "no-op build 2"
_MOST_RECORDS = 64
_MODIFIED = 3  # the index of the modification time in an identity


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord:
    """What a build depended on, and what it printed. `request` is the whole text of what was asked for.

    `checksum` is the XXH3-128 of the stats of `paths`, in order. `paths` are absolute or relative to the workspace's
    root. `results` are files that must exist. `outputs`, `notes` and the number of `actions` are printed again.
    `targets` are the labels that the request stands for.
    """

    request: str
    paths: tuple[str, ...]
    checksum: str
    results: tuple[str, ...]
    outputs: tuple[str, ...]
    actions: int
    targets: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def is_current(self, root: Path) -> bool:
        """Whether nothing was touched since. Costs one stat for each path, and marks the results as used."""
        return checksum_of(identities(root, self.paths)) == self.checksum and all(map(mark_used, self.results))


def make_no_op_record(
    root: Path,
    *,
    request: str,
    began_nanoseconds: int,
    observed: Iterable[str],
    placed: Mapping[str, Identity],
    results: Iterable[str],
    outputs: tuple[str, ...],
    actions: int,
    targets: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> NoOpRecord | None:
    """The record of a successful build that began at `began_nanoseconds` of the wall clock.

    None where an `observed` path may have been touched since shortly before the build began: its stat may then belong
    to another state than the build saw. `placed` has the stats of the outputs when they were right. Where one of them
    is too young, a later write would not change it, so there is no record either.
    """
    seen = settled_identities(root, observed, began_nanoseconds)
    if seen is None:
        return None
    if any(identity[_MODIFIED] >= now_nanoseconds() - RACY_NANOSECONDS for identity in placed.values()):
        return None
    seen.update(placed)
    existing = tuple(sorted(set(results)))
    if not all(map(os.path.exists, existing)):
        return None
    return NoOpRecord(
        request=request,
        paths=tuple(seen),
        checksum=checksum_of(tuple(seen.values())),
        results=existing,
        outputs=outputs,
        actions=actions,
        targets=targets,
        notes=notes,
    )


def load_no_op_record(state_directory: Path, request: str) -> NoOpRecord | None:
    """The record of a request in a workspace's `.mlcbuild/`; None where there is none, or an invalid one."""
    path = _place(state_directory, request)
    if not path.exists():
        return None
    cache = JsonCache(path, kind=_KIND)
    if cache.get("request") != request:
        return None
    try:
        return NoOpRecord(
            request=request,
            paths=tuple(cache.get("paths")),
            checksum=str(cache.get("checksum")),
            results=tuple(cache.get("results")),
            outputs=tuple(cache.get("outputs")),
            actions=int(cache.get("actions")),
            targets=tuple(cache.get("targets")),
            notes=tuple(cache.get("notes")),
        )
    except (TypeError, ValueError):
        return None


def save_no_op_record(state_directory: Path, build: NoOpRecord) -> None:
    """Write a record. A disk that cannot take it only makes the next build slower."""
    if build == load_no_op_record(state_directory, build.request):
        return
    path = _place(state_directory, build.request)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        cache = JsonCache(path, kind=_KIND)
        for field in fields(build):
            cache.set(field.name, getattr(build, field.name))
        cache.save()
        for old in sorted(path.parent.iterdir(), key=lambda entry: entry.stat().st_mtime_ns)[:-_MOST_RECORDS]:
            old.unlink(missing_ok=True)


def _place(state_directory: Path, request: str) -> Path:
    return state_directory / _DIRECTORY / checksum_of_bytes(request.encode()).hex()
