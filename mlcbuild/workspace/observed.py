"""Which paths decided what was loaded or analysed: a later command can tell by their stats that it is still true."""

# ruff: noqa: PTH116
# Paths are strings here: making a Path costs more than the system call that it is for.

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

NOTHING = 0  # the kind of a path where nothing is
_CHANGED = -1  # the kind of a path that was not the same twice


@dataclass(frozen=True, kw_only=True)
class ObservedPaths:
    """Absolute paths, or paths from the workspace's root; also of what does not exist.

    Of a path that was only `looked_for` it counted whether it is a file, a folder or nothing, and not what is in it:
    its kind, as `kind_of` has it. So an edit of a source file changes nothing for whoever has asked whether it exists.
    """

    read: frozenset[str] = frozenset()  # the content of a file, the listing of a folder
    looked_for: Mapping[str, int] = field(default_factory=dict)

    @property
    def all(self) -> frozenset[str]:
        return self.read.union(self.looked_for)

    def with_newer(self, newer: ObservedPaths) -> ObservedPaths:
        """The union; of a path that both have a kind of, the newer one."""
        return ObservedPaths(read=self.read | newer.read, looked_for={**self.looked_for, **newer.looked_for})


class Observer:
    """Collects the paths below `root` while something is read. `known` are kinds that were looked for just before."""

    def __init__(self, root: Path, *, known: Mapping[str, int] = MappingProxyType({})) -> None:
        self._root = root
        self._known = known
        self._read: set[str] = set()
        self._looked_for: dict[str, int] = {}

    def kind_of(self, path: str) -> int:
        """The kind of what is at the path. That was looked for."""
        kind = self._known.get(path, _CHANGED)
        if kind == _CHANGED:
            kind = kind_of(self._root, path)
        if self._looked_for.setdefault(path, kind) != kind:
            self._looked_for[path] = _CHANGED
        return kind

    def is_file(self, path: str) -> bool:
        return stat.S_ISREG(self.kind_of(path))

    def will_read(self, *paths: str) -> None:
        """To be called before a file is read, or a folder is listed. That it exists counts then too."""
        for path in paths:
            self.kind_of(path)
            self._read.add(path)

    @property
    def paths(self) -> ObservedPaths:
        return ObservedPaths(read=frozenset(self._read), looked_for=dict(self._looked_for))


def kind_of(root: Path, path: str) -> int:
    """Whether there is a file, a folder or something else at a path, as the bits of a mode (stat.S_IFMT), or NOTHING.

    Links are followed. An absolute path is taken as it is.
    """
    try:
        return stat.S_IFMT(os.stat(path if path[:1] == "/" else f"{root}/{path}").st_mode)
    except (OSError, ValueError):  # ValueError: no path has a zero byte.
        return NOTHING


def kinds_of(root: Path, paths: Iterable[str]) -> list[int]:
    """The kinds of all of the paths, in their order."""
    return [kind_of(root, path) for path in paths]
