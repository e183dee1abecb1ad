"""The states of paths by their stats: whether what was read once is still the same, without reading it again."""

# ruff: noqa: PTH116
# Paths are strings here: making a Path costs more than the system call that it is for.

from __future__ import annotations

import marshal
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlcbuild.cache.integrity import checksum_of_bytes
from mlcbuild.cache.stat_cache import Identity, identity_of, is_racy

ABSENT: Identity = (0, 0, 0, 0, 0, 0)
_MARSHAL_VERSION = 2  # later versions write equal values differently


def identities(root: Path, paths: Iterable[str]) -> list[Identity]:
    """What must be equal for a path's content to count as unchanged; paths are absolute, or relative to `root`."""
    found: list[Identity] = []
    for path in paths:
        try:
            found.append(identity_of(os.stat(path if path[:1] == "/" else f"{root}/{path}")))
        except OSError:
            found.append(ABSENT)
    return found


def settled_identities(root: Path, paths: Iterable[str], began_nanoseconds: int) -> dict[str, Identity] | None:
    """The identities of the paths, sorted, as something saw them that began at that time of the wall clock.

    None where one may have been touched since shortly before: its stat may then belong to another state than was seen.
    """
    found: dict[str, Identity] = {}
    for path in sorted(paths):
        try:
            status = os.stat(path if path[:1] == "/" else f"{root}/{path}")
        except OSError:
            found[path] = ABSENT
            continue
        if is_racy(status, began_nanoseconds):
            return None
        found[path] = identity_of(status)
    return found


def checksum_of(states: Sequence[Identity]) -> str:
    """The XXH3-128 of states in their order, as hexadecimal digits."""
    return checksum_of_bytes(marshal.dumps(list(states), _MARSHAL_VERSION)).hex()
