"""Snapshots: what was loaded and analysed of a workspace, kept on disk for the next command.

A snapshot holds the paths of everything that decided its value, and their stats. While they are the same, the value is
read back, which takes a fraction of the time to make it, and none of the rules' modules. After an edit, whoever makes
the value again may take over of the earlier one what the edit has not touched. Whatever is wrong with a snapshot, it
counts as absent, and is written again.

A file is a line that names the form, the XXH3-128 of the rest in hexadecimal digits, a line of JSON (the request, the
paths, their stats), and the value as a pickle. Reading one makes values of mlcbuild's own classes and calls nothing
else: whoever can write to a workspace's `.mlcbuild/` can at most change its values, as by an edit of a `BUILD.toml`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import io
import json
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mlcbuild.cache.atomic import write_atomically
from mlcbuild.cache.integrity import checksum_of_bytes
from mlcbuild.cache.last_use import mark_used
from mlcbuild.cli.workspace.program import program_identity, program_paths
from mlcbuild.engine.path_states import identities, settled_identities
from mlcbuild.regular_files import read_regular
from mlcbuild.workspace.collector import without_collector
from mlcbuild.workspace.observed import ObservedPaths, kinds_of

if TYPE_CHECKING:
    from mlcbuild.rules.analysis import Analysis
    from mlcbuild.workspace.loader import LoadedWorkspace

DIRECTORY = "snapshots"
_FORM = b"mlcbuild snapshot 2"
_PICKLE_PROTOCOL = 5
_MOST_FILES = 32
_MOST_BYTES = 256 << 20
_MOST_BYTES_OF_ONE = 128 << 20
_OURS = "mlcbuild."
# Values that our classes have as fields, and that pickles name.
_BUILT_IN = {("pathlib", "PosixPath"): PosixPath, ("builtins", "frozenset"): frozenset}


Value = TypeVar("Value", "LoadedWorkspace", "Analysis")


@dataclass(frozen=True, kw_only=True)
class Earlier(Generic[Value]):
    """A snapshot of an equal request. Its value was decided by files that may have changed since, or by another value.

    `changed` are the paths that it read and that are not the same now. Kinds of what it looked for are unchanged.
    """

    head: Mapping[str, Any]
    changed: frozenset[str]
    pickled: bytes

    @property
    def digest(self) -> str:
        return checksum_of_bytes(self.pickled).hex()

    def value(self) -> Value | None:
        """What it was then, as it was observed then; None for a snapshot that cannot be read."""
        try:
            value: Value = _Reader(io.BytesIO(self.pickled)).load()
            looked_for = dict(zip(self.head["looked_for"], self.head["kinds"], strict=True))
            observed = ObservedPaths(read=frozenset(self.head["read"]), looked_for=looked_for)
            return dataclasses.replace(value, observed=observed)
        except Exception:  # What a damaged pickle raises may be anything.
            return None


@dataclass(frozen=True, kw_only=True)
class Snapshots:
    """The snapshots of one workspace. `began_nanoseconds` is the wall clock before anything of it was read."""

    root: Path
    state_directory: Path
    began_nanoseconds: int

    def recall(
        self,
        request: tuple[object, ...],
        make: Callable[[Earlier[Value] | None], Value],
        *,
        made_of: str | None = "",
    ) -> tuple[Value, str]:
        """The value of a request, which is read back, or made and kept; and the digest of the value, "" where it could
        not be kept. The request is everything that decides the value besides files, as JSON values, and `made_of` the
        digest of what may be different although the request is equal: one snapshot of a request is kept. Where that
        is not the value any more, `make` gets it. With None for an unknown digest nothing is read back or kept.

        What is read back was observed with the files of the program that made it. Raises what `make` raises.
        """
        name = self.name_of(request)
        with without_collector():
            earlier: Earlier[Value] | None = self._find(name)
            if earlier is not None and not earlier.changed and earlier.head["made_of"] == made_of:
                value = earlier.value()
                if value is not None:
                    mark_used(str(self._path(name)))
                    return value, earlier.digest
                earlier = None
            made = make(earlier)
            return made, "" if made_of is None else self._keep(name, made, made_of)

    def name_of(self, request: tuple[object, ...]) -> str:
        """What stands for a request; equal requests of two workspaces, or of two programs, have different names."""
        return hashlib.sha256(json.dumps([request, str(self.root), _surroundings()]).encode()).hexdigest()

    def _find(self, name: str) -> Earlier[Any] | None:
        """The snapshot of a name, if what it looked for is as it was."""
        try:
            form, checksum, rest = read_regular(self._path(name)).split(b"\n", 2)
            if form != _FORM or checksum != checksum_of_bytes(rest).hex().encode():
                return None
            line, _, pickled = rest.partition(b"\n")
            head: dict[str, Any] = json.loads(line)
            if head["name"] != name or kinds_of(self.root, head["looked_for"]) != head["kinds"]:
                return None
            now = zip(head["read"], identities(self.root, head["read"]), head["identities"], strict=True)
            changed = frozenset(path for path, found, before in now if list(found) != before)
        except Exception:  # What is wrong with a damaged file may be anything.
            return None
        return Earlier(head=head, changed=changed, pickled=pickled)

    def _keep(self, name: str, value: Value, made_of: str) -> str:
        """The digest of a value that was written, or that only the disk did not take. "" where it may not be kept."""
        if not self.state_directory.is_dir():
            return ""  # Commands that only look leave nothing in a workspace that was never built.
        read = settled_identities(self.root, value.observed.read | program_paths(), self.began_nanoseconds)
        if read is None:
            return ""
        try:
            pickled = pickle.dumps(dataclasses.replace(value, observed=ObservedPaths()), _PICKLE_PROTOCOL)
        except Exception:  # A rule file's own class has no name that a pickle could give it, for example.
            return ""
        head = {
            "name": name,
            "made_of": made_of,
            "read": list(read),
            "identities": list(read.values()),
            "looked_for": list(value.observed.looked_for),
            "kinds": list(value.observed.looked_for.values()),
        }
        rest = json.dumps(head).encode() + b"\n" + pickled
        if len(rest) > _MOST_BYTES_OF_ONE:
            return ""
        path = self._path(name)
        with contextlib.suppress(OSError):  # A disk that cannot take it only makes the next command slower.
            write_atomically(path, b"\n".join((_FORM, checksum_of_bytes(rest).hex().encode(), rest)))
            _limit(path.parent)
        return checksum_of_bytes(pickled).hex()

    def _path(self, name: str) -> Path:
        return self.state_directory / DIRECTORY / name


def _member(kind: object, name: object) -> enum.Enum:
    """In place of `getattr`, by which Python up to 3.11.3 pickles the members of enumerations."""
    if isinstance(kind, type) and issubclass(kind, enum.Enum) and isinstance(name, str):
        return kind[name]
    raise pickle.UnpicklingError(f"{name!r} of {kind!r} is no value of a snapshot")


class _Reader(pickle.Unpickler):
    """Makes values of our own classes, and of nothing else that a pickle may name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _member
        found = _BUILT_IN.get((module, name))
        if found is None and module.startswith(_OURS):
            found = super().find_class(module, name)
        if isinstance(found, type) and (
            found in _BUILT_IN.values() or dataclasses.is_dataclass(found) or issubclass(found, (tuple, enum.Enum))
        ):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is no value of a snapshot")


def _surroundings() -> list[object]:
    """What may decide any value besides files: the program, the machine, and whose rights count."""
    return [program_identity(), os.uname().machine, os.geteuid()]


def _limit(folder: Path) -> None:
    """Remove the snapshots that were not used for the longest time, until the others are few and small enough."""
    files = sorted(((entry.stat(), entry.path) for entry in os.scandir(folder)), key=lambda each: -each[0].st_mtime_ns)
    size = 0
    for number, (status, path) in enumerate(files):
        size += status.st_size
        if number >= _MOST_FILES or size > _MOST_BYTES:
            Path(path).unlink(missing_ok=True)
