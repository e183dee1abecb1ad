"""What the machines of one build must have in common, and how two of them differ.

An action's key counts the code and the toolchains of whoever starts the build. A machine with others would store what
the key does not describe, so it is found out before anything runs there.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import mlcbuild
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.toolchains.table import Toolchains

_ABSENT = "absent"
_SHOWN_CHARACTERS = 16
_VERSIONS = ("ray",)
_GENERATED = "__pycache__"
# What runs on nodes, and what is spoken with them. Commands, rules and questions run where the build is.
_PARTS = ("__init__.py", "errors.py", "figures.py", "cache", "compiler", "engine", "execution", "runtime", "toolchains")


def likeness_of(toolchains: Iterable[str], fingerprints: Toolchains) -> dict[str, str]:
    """Name → what it is on this machine; things that are not installed are `absent`."""
    found = {"mlcbuild": f"{mlcbuild.__version__} {_source_digest()}", "python": fingerprints.version("python")}
    for name in _VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = _ABSENT
    for name in sorted(set(toolchains) - set(found)):
        try:
            found[f"toolchain {name}"] = fingerprints.fingerprint(name)
        except LocalEnvironmentError:
            found[f"toolchain {name}"] = _ABSENT
    return found


def digest_of(likeness: Mapping[str, str]) -> str:
    """64 hexadecimal digits; equal for machines that are alike."""
    return hashlib.sha256("\n".join(f"{name}\0{likeness[name]}" for name in sorted(likeness)).encode()).hexdigest()


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each thing that is not the same, for people."""
    told = []
    for name in sorted({*ours, *theirs}):
        here, there = (values.get(name, _ABSENT) for values in (ours, theirs))
        if here != there:
            told.append(f"{name}: {_shown(there)} there, {_shown(here)} here")
    return tuple(told)


def _shown(value: str) -> str:
    return " ".join(word[:_SHOWN_CHARACTERS] if len(word) == 64 else word for word in value.split())


@cache
def _source_digest() -> str:
    """SHA-256 over those files of mlcbuild by their paths below it, whatever way it was installed."""
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
