"""Fingerprints of installed Python distributions, read from their metadata without importing them.

The RECORD of a distribution (PyPA's "Recording installed projects") lists its files with SHA-256 hashes. The
fingerprint is a hash over those of the wheel's own files. It is the same in every environment, at every path, by every
installer.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.stat_cache import identity_of
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.errors import LocalEnvironmentError

_SEPARATORS = re.compile(r"[-_.]+")
_INFO_SUFFIXES = (".dist-info", ".egg-info")
_ORIGIN = "direct_url.json"
_GENERATED_FOLDERS = frozenset({"__pycache__", ".git", ".hg", "build", "dist", ".venv", "node_modules"})


def normalized(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return _SEPARATORS.sub("-", name).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """An installed distribution: its normalized name, its version, and its metadata folder."""

    name: str
    version: str
    information: Path


class Distributions:
    """The distributions on Python's search path (`search_path`, by default `sys.path`)."""

    def __init__(self, cache: JsonCache, search_path: Sequence[str] | None = None) -> None:
        self._cache = cache
        self._search_path = tuple(sys.path if search_path is None else search_path)
        self.observed: set[str] = set()  # absolute paths that decided any answer
        self._found: dict[str, Distribution] | None = None
        self._providers: dict[str, list[str]] | None = None
        self._fingerprints: dict[str, str] = {}

    def find(self, name: str) -> Distribution | None:
        """The distribution of that name in any spelling; None where it is not installed."""
        return self._all().get(normalized(name))

    def fingerprint(self, name: str) -> str:
        """64 hexadecimal digits over the content of a distribution's files.

        Raises LocalEnvironmentError where it is not installed, or where one of its files cannot be read.
        """
        distribution = self.find(name)
        if distribution is None:
            raise LocalEnvironmentError(
                f"the Python distribution {name} is not installed beside {sys.executable}",
                advice=("install mlcbuild again, with its dependencies",),
            )
        if distribution.name not in self._fingerprints:
            try:
                self._fingerprints[distribution.name] = self._fingerprint(distribution)
            except (OSError, ValueError) as error:
                raise LocalEnvironmentError(
                    f"the installation of {name} {distribution.version} cannot be read: {error}",
                    advice=(f"install it again: python -m pip install --force-reinstall {name}",),
                ) from error
        return self._fingerprints[distribution.name]

    def providing(self, package: str) -> tuple[str, ...]:
        """The distributions that install an importable top-level name; () where there are none."""
        if self._providers is None:
            self._providers = self._read_providers()
        return tuple(self._providers.get(package, ()))

    def is_working_tree(self, name: str, folder: Path) -> bool:
        """Whether an installed distribution is an editable install of the packages in `folder`."""
        distribution = self.find(name)
        if distribution is None:
            return False
        self.observed.add(str(distribution.information / _ORIGIN))
        return _project_folder(distribution.information).resolve() == folder.resolve()

    # Inside.

    def _all(self) -> dict[str, Distribution]:
        if self._found is None:
            self._found = {}
            for folder in self._search_path:
                self.observed.add(os.path.abspath(folder or "."))  # noqa: PTH100
                for entry in _entries(folder):
                    stem, dot, suffix = entry.rpartition(".")
                    if dot + suffix not in _INFO_SUFFIXES:
                        continue
                    # In `.dist-info` the version follows the last hyphen. In `.egg-info` more may follow the version.
                    cut = stem.rfind("-") if suffix == "dist-info" else stem.find("-")
                    name, version = (stem[:cut], stem[cut + 1 :]) if cut > 0 else (stem, "")
                    # The first folder of the search path wins, as for imports.
                    self._found.setdefault(
                        normalized(name),
                        Distribution(name=normalized(name), version=version, information=Path(folder, entry)),
                    )
        return self._found

    def _fingerprint(self, distribution: Distribution) -> str:
        record = distribution.information / "RECORD"
        self.observed.update((str(record), str(distribution.information / _ORIGIN)))
        if _is_editable(distribution.information) or not record.is_file():
            return _hash_lines(_lines_of_files(distribution.information, self.observed))
        key = f"distribution {distribution.information}"
        identity = list(identity_of(record.stat()))
        remembered = self._cache.get(key)
        if isinstance(remembered, list) and len(remembered) == 2 and remembered[0] == identity:
            return str(remembered[1])
        fingerprint = _hash_lines(_lines_of_record(record))
        self._cache.set(key, [identity, fingerprint])
        return fingerprint

    def _read_providers(self) -> dict[str, list[str]]:
        # Only folders with distributions. Other folders, such as the current directory, change all the time.
        folders = dict.fromkeys(str(found.information.parent) for found in self._all().values())
        stamps = [[folder, os.stat(folder).st_mtime_ns] for folder in folders]  # noqa: PTH116
        remembered = self._cache.get("providers")
        if isinstance(remembered, list) and len(remembered) == 2 and remembered[0] == stamps:
            providers: dict[str, list[str]] = remembered[1]
            return providers
        providers = {}
        for distribution in self._all().values():
            for name in _top_level_names(distribution.information):
                providers.setdefault(name, []).append(distribution.name)
        for names in providers.values():
            names.sort()
        self._cache.set("providers", [stamps, providers])
        return providers


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder or "."))  # noqa: PTH208
    except OSError:
        return []


def _is_editable(information: Path) -> bool:
    """Whether the files are those of a working tree (PEP 610, PEP 660). RECORD then lists only a pointer to them."""
    import json

    try:
        document = json.loads((information / _ORIGIN).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and bool(document.get("dir_info", {}).get("editable", False))


def _rows(record: Path) -> list[list[str]]:
    import csv

    with record.open(encoding="utf-8", newline="") as stream:
        return [row for row in csv.reader(stream) if len(row) >= 2]


def _lines_of_record(record: Path) -> list[str]:
    """`path\\0hash` of the wheel's own files.

    Without scripts (the installer writes a path into them), byte code, and the metadata folder except METADATA:
    INSTALLER, REQUESTED, direct_url.json and RECORD are about the installation.
    """
    information = record.parent.name + "/"
    lines = []
    for row in _rows(record):
        path, recorded = row[0], row[1]
        if path.startswith(("../", "/")) or path.endswith(".pyc"):
            continue
        if path.startswith(information) and path != information + "METADATA":
            continue
        lines.append(f"{path}\0{recorded or _recorded_hash(record.parent.parent / path)}")
    return lines


def _recorded_hash(path: Path) -> str:
    """The hash of a file as RECORD writes it."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _lines_of_files(information: Path, observed: set[str]) -> list[str]:
    """`path\\0hash` of all files of a distribution without a usable RECORD. Adds what it looks at to `observed`."""
    top = _project_folder(information)
    names = _top_level_names(information) or {normalized(information.name.partition("-")[0]).replace("-", "_")}
    lines = []
    for name in sorted(names):
        for path in (top / name, top / "src" / name, top / f"{name}.py"):
            files = [path] if path.is_file() else _files_below(path, observed)
            observed.update(map(str, (path, *files)))
            lines += [f"{file.relative_to(top)}\0{_recorded_hash(file)}" for file in files]
    if not lines:
        raise ValueError(f"none of its files were found below {str(top)!r}")
    return lines


def _project_folder(information: Path) -> Path:
    """The folder of a distribution's files: for an editable install by direct_url.json, else where it is installed."""
    import json
    from urllib.parse import unquote, urlsplit

    if _is_editable(information):
        document = json.loads((information / _ORIGIN).read_bytes())
        address = urlsplit(str(document.get("url", "")))
        if address.scheme == "file":
            return Path(unquote(address.path))
    return information.parent


def _files_below(folder: Path, observed: set[str]) -> list[Path]:
    found = []
    for parent, folders, names in os.walk(folder):
        observed.add(parent)
        folders[:] = sorted(name for name in folders if name not in _GENERATED_FOLDERS)
        found += [Path(parent, name) for name in sorted(names) if not name.endswith(".pyc")]
    return found


def _top_level_names(information: Path) -> set[str]:
    """The importable top-level names of a distribution, from its RECORD and top_level.txt."""
    names: set[str] = set()
    try:
        names.update((information / "top_level.txt").read_text(encoding="utf-8").split())
    except OSError:
        pass
    try:
        paths = [row[0] for row in _rows(information / "RECORD")]
    except (OSError, ValueError):
        return names
    for path in paths:
        first, slash, _ = path.partition("/")
        if not slash:
            first = first.partition(".")[0] if first.endswith((".py", ".so")) else ""
        if first.isidentifier() and first != "__pycache__":
            names.add(first)
    return names


def _hash_lines(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
