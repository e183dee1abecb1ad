"""Large folders among the inputs of actions, such as the environment of a compiler, are hashed once for all actions.

Such a folder is known again by its files: `resolution` places the files of an output once for each path.
"""

from __future__ import annotations

import hashlib
import marshal
import operator
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.merkle import InputRoot, TreeFile, input_root
from mlcbuild.engine.action import Action, DerivedArtifact
from mlcbuild.engine.executor import FileEntry

FEWEST_FILES = 500  # of a folder that is worth remembering
_MOST_REMEMBERED = 8  # at one path
_MARSHAL_VERSION = 2  # the last without references, so equal values have equal bytes


@dataclass(kw_only=True)
class LargeFolder:
    """The files of an output of an action at the path `place`, which ends in "/"."""

    place: str
    files: tuple[FileEntry, ...]
    function: DigestFunction
    signature: str = ""
    _root: InputRoot | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.signature = hashlib.sha256(marshal.dumps(described(self.files), _MARSHAL_VERSION)).hexdigest()

    @property
    def root(self) -> InputRoot:
        """Its Merkle tree. Raises ValueError for files that cannot lie in one directory."""
        if self._root is None:
            start = len(self.place)
            files = [TreeFile(entry.path[start:], entry.in_key, entry.is_executable) for entry in self.files]
            self._root = input_root(files, self.function)
        return self._root


@dataclass(frozen=True, kw_only=True)
class SplitInputs:
    """The inputs of an action: large folders, and all other files, sorted by path."""

    folders: tuple[LargeFolder, ...]
    others: Sequence[FileEntry]


class LargeFolders:
    """Remembers the large folders that it has seen."""

    def __init__(self, function: DigestFunction) -> None:
        self._function = function
        self._known: dict[str, list[LargeFolder]] = {}

    def split(self, action: Action, inputs: tuple[FileEntry, ...]) -> SplitInputs:
        """`inputs` are the files of the action's inputs, sorted by path."""
        if len(inputs) < FEWEST_FILES:
            return SplitInputs(folders=(), others=inputs)
        folders: list[LargeFolder] = []
        others: list[FileEntry] = []
        start = 0
        derived = (item.path for item in action.inputs if isinstance(item.artifact, DerivedArtifact))
        for place in sorted(path for path in derived if path.endswith("/")):
            first = bisect_left(inputs, place, lo=start, key=_path)
            last = bisect_left(inputs, f"{place[:-1]}0", lo=first, key=_path)  # "0" is what follows "/"
            if last - first >= FEWEST_FILES:
                others += inputs[start:first]
                folders.append(self._folder(place, inputs[first:last]))
                start = last
        return SplitInputs(folders=tuple(folders), others=[*others, *inputs[start:]])

    def _folder(self, place: str, files: tuple[FileEntry, ...]) -> LargeFolder:
        known = self._known.setdefault(place, [])
        for folder in known:
            if len(folder.files) == len(files) and all(map(operator.is_, folder.files, files)):
                return folder
        made = LargeFolder(place=place, files=files, function=self._function)
        known[:] = [made, *known[: _MOST_REMEMBERED - 1]]
        return made


def described(files: Sequence[FileEntry]) -> list[tuple[str, str, int, bool]]:
    """What a signature tells of files, in Python's own encoding."""
    return [(entry.path, entry.in_key.hash, entry.in_key.size_bytes, entry.is_executable) for entry in files]


def _path(entry: FileEntry) -> str:
    return entry.path
