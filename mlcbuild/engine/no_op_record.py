"""A build that has nothing to do, known from stats alone.

After a build that succeeded, everything whose state decided what it did is known: files and folders that were read,
listed or looked for, the results that were used, the outputs that were placed. As long as the stat of each is the
same, the same request has nothing to do, and that is told without loading, analysing or computing a key. Where
anything differs, the build takes its whole way; nothing else ever depends on this record.
"""

from __future__ import annotations

import contextlib
import marshal
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from mlcbuild.cache.integrity import checksum_of_bytes
from mlcbuild.cache.last_use import mark_used
from mlcbuild.cache.stat_cache import RACY_NANOSECONDS, Identity, identity_of, is_racy, now_nanoseconds
from mlcbuild.engine.json_cache import JsonCache

_DIRECTORY = "no-op"
_KIND = "no-op build 1"
_ABSENT: Identity = (0, 0, 0, 0, 0, 0)
_MARSHAL_VERSION = 2  # later ones write the same value differently from run to run
_MOST_RECORDS = 64
_MODIFIED = 3  # where the time of modification stands in an identity


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord:
    """What the build of one `request` (its whole text) saw and told.

    `paths` (absolute, or from the workspace's root) have the stats that `checksum` (XXH3-128) was made from, in
    order; `results` are files that must exist; `outputs` and `actions` are what the build told.
    """

    request: str
    paths: tuple[str, ...]
    checksum: str
    results: tuple[str, ...]
    outputs: tuple[str, ...]
    actions: int

    def is_current(self, root: Path) -> bool:
        """Whether nothing was touched since: a stat a path, no byte read. The results count as used."""
        identities = [_identity(_status(root, path)) for path in self.paths]
        return _checksum(identities) == self.checksum and all(map(mark_used, self.results))


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
) -> NoOpRecord | None:
    """The record of a build that succeeded, begun at `began_nanoseconds` of the wall clock.

    None where something that was `observed` may have been touched since shortly before the build began: its stat
    now could be that of another state than the one the build saw. `placed` has the outputs' stats as they were right;
    one that is too young may hide a write as well.
    """
    identities: dict[str, Identity] = {}
    for path in sorted(observed):
        status = _status(root, path)
        if status is not None and is_racy(status, began_nanoseconds):
            return None
        identities[path] = _identity(status)
    if any(identity[_MODIFIED] >= now_nanoseconds() - RACY_NANOSECONDS for identity in placed.values()):
        return None
    identities.update(placed)
    existing = tuple(sorted(set(results)))
    if not all(map(os.path.exists, existing)):
        return None
    return NoOpRecord(
        request=request,
        paths=tuple(identities),
        checksum=_checksum(list(identities.values())),
        results=existing,
        outputs=outputs,
        actions=actions,
    )


def load_no_op_record(state_directory: Path, request: str) -> NoOpRecord | None:
    """The record of a request in a workspace's `.mlcbuild/`; None where there is none that can be read."""
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
        )
    except (TypeError, ValueError):
        return None


def save_no_op_record(state_directory: Path, build: NoOpRecord) -> None:
    """Keep a record. A disk that cannot take it costs time later, nothing else."""
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


def _status(root: Path, path: str) -> os.stat_result | None:
    """None for what is absent."""
    try:
        return os.stat(path if path[:1] == "/" else f"{root}/{path}")  # noqa: PTH116
    except OSError:
        return None


def _identity(status: os.stat_result | None) -> Identity:
    return _ABSENT if status is None else identity_of(status)


def _checksum(identities: list[Identity]) -> str:
    return checksum_of_bytes(marshal.dumps(identities, _MARSHAL_VERSION)).hex()
