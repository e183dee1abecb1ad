"""What all machines of a build must have in common, and how two machines differ.

The key of an action covers the code and the toolchains of the machine that starts the build. A node with others would
store results that do not match the key, so nodes are compared before anything runs there.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import mlcbuild
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.toolchains.table import Toolchains

_ABSENT = "absent"
_SHOWN_CHARACTERS = 16
_VERSIONS = ("ray",)
_GENERATED = "__pycache__"
# The parts of mlcbuild that run on nodes. Commands, rules and queries run only on the machine that builds.
_PARTS = (
    "__init__.py",
    "errors.py",
    "figures.py",
    "plugins.py",
    "suggestions.py",
    "cache",
    "compiler",
    "engine",
    "execution",
    "runtime",
    "toolchains",
)


@dataclass(frozen=True, kw_only=True)
class EnvironmentFingerprint:
    """`components` maps names, such as `mlcbuild`, `python` and `toolchain tvm`, to what each is on a machine."""

    components: Mapping[str, str]

    @property
    def digest(self) -> str:
        """64 hexadecimal digits, equal for machines that do not differ."""
        lines = (f"{name}\0{self.components[name]}" for name in sorted(self.components))
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def differences(self, theirs: EnvironmentFingerprint) -> tuple[str, ...]:
        """One line for people for each component that differs there from this machine."""
        found = []
        for name in sorted({*self.components, *theirs.components}):
            here, there = (each.components.get(name, _ABSENT) for each in (self, theirs))
            if here != there:
                found.append(f"{name}: {_shown(there)} there, {_shown(here)} here")
        return tuple(found)


def this_environment(names: Iterable[str], toolchains: Toolchains) -> EnvironmentFingerprint:
    """The fingerprint of this machine, with the toolchains of these names. What is not installed is `absent`."""
    components = {"mlcbuild": f"{mlcbuild.__version__} {_source_digest()}", "python": toolchains.version("python")}
    for name in _VERSIONS:
        try:
            components[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            components[name] = _ABSENT
    for name in sorted(set(names)):
        try:
            components[f"toolchain {name}"] = toolchains.fingerprint(name)
        except LocalEnvironmentError:
            components[f"toolchain {name}"] = _ABSENT
    return EnvironmentFingerprint(components=components)


def _shown(value: str) -> str:
    return " ".join(word[:_SHOWN_CHARACTERS] if len(word) == 64 else word for word in value.split())


@cache
def _source_digest() -> str:
    """SHA-256 over those files of mlcbuild and their paths, independent of how it was installed."""
    root = Path(mlcbuild.__file__).parent
    whole = hashlib.sha256()
    for path in sorted(file for part in _PARTS for file in _files(root / part)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return whole.hexdigest()


def _files(path: Path) -> Iterable[Path]:
    if not path.is_dir():
        yield path
    elif path.name != _GENERATED:
        for inside in path.iterdir():
            yield from _files(inside)
