"""Fingerprints of installed Python distributions, made from their files without importing them.

The RECORD of a distribution (PyPA's "Recording installed projects") lists its files. The fingerprint is a hash over the
wheel's own files as they are now, because people patch installed packages in place. It is the same in every
environment, at every path, by every installer. A second look costs one stat for each file.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.integrity import checksum_of_bytes
from mlcbuild.cache.stat_cache import identity_of, is_racy, now_nanoseconds
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.regular_files import walk_through_links

_SEPARATORS = re.compile(r"[-_.]+")
_INFO_SUFFIXES = (".dist-info", ".egg-info")
_ORIGIN = "direct_url.json"
_IMPORTABLE = (".py", ".so")
_GENERATED_FOLDERS = frozenset({"__pycache__", ".git", ".hg", "build", "dist", ".venv", "node_modules"})
# No Python program loads them. They count, but the no-op check does not look at them again.
_NOT_LOADED = re.compile(r"/tests/|\.(?:h|hpp|cuh|c|cc|cpp|f|f90|pyi|pxd|pyx|pxi|cmake|m4|md)$")


def normalized(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return _SEPARATORS.sub("-", name).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """An installed distribution: its normalized name, its version, and its metadata folder."""

    name: str
    version: str
    information: Path


def install_again(*found: Distribution) -> str:
    """Advice for distributions that are damaged: the same releases, and nothing else."""
    named = " ".join(f"{each.name}=={each.version}" for each in found)
    return f"install it again: python -m pip install --force-reinstall --no-deps {named}"


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
                    advice=(install_again(distribution),),
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
        files = InstalledDistribution(record)
        key = f"distribution {distribution.information}"
        remembered = self._cache.get(key)
        state, unlisted, fingerprint = "", [], ""
        if isinstance(remembered, list) and len(remembered) == 3 and isinstance(remembered[1], list):
            state, unlisted, fingerprint = remembered
        if not state or files.state(unlisted) != state:
            started = now_nanoseconds()
            unlisted = files.unlisted()
            state = files.state(unlisted)
            fingerprint = files.fingerprint(unlisted)
            if not files.was_touched_since(started):
                self._cache.set(key, [state, unlisted, fingerprint])
        self.observed.update(files.watched(unlisted))
        return str(fingerprint)

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


class InstalledDistribution:
    """The files of a distribution with a RECORD, as they are on disk. Paths are relative to where it is installed.

    Scripts are left out (the installer writes a path into them), and so are byte code and the metadata folder except
    METADATA: INSTALLER, REQUESTED, direct_url.json and RECORD are about the installation. A file that RECORD lists and
    that is not there counts as absent. In a regular package that is all its own, modules that RECORD does not list
    count too: they may hide others.
    """

    def __init__(self, record: Path) -> None:
        self._record = str(record)
        self._top = str(record.parent.parent)
        information = record.parent.name + "/"
        paths = (row[0] for row in _rows(record))
        self._files = sorted(
            {
                path
                for path in paths
                if not path.startswith(("../", "/"))
                and not path.endswith(".pyc")
                and (not path.startswith(information) or path == information + "METADATA")
            }
        )
        packages = {path.removesuffix("/__init__.py") for path in self._files if path.count("/") == 1}
        self._packages = sorted(package for package in packages if f"{package}/__init__.py" in self._files)
        below = tuple(f"{package}/" for package in self._packages)
        folders = {
            path.rpartition("/")[0] for path in self._files if path.startswith(below) and path.endswith(_IMPORTABLE)
        }
        self._folders = sorted(folders)

    def state(self, unlisted: list[str]) -> str:
        """Changes with the stat of any of the files, and of the folders that hold modules."""
        found: list[object] = []
        for path in (*self._files, *unlisted, *self._folders):
            try:
                found.append(identity_of(os.stat(f"{self._top}/{path}")))  # noqa: PTH116
            except OSError:
                found.append(None)
        return checksum_of_bytes(marshal.dumps(found, 2)).hex()

    def was_touched_since(self, started: int) -> bool:
        """Whether a file may change again without a change of its stat, as seen at `started` or later."""
        for path in (*self._files, *self._folders):
            try:
                if is_racy(os.stat(f"{self._top}/{path}"), started):  # noqa: PTH116
                    return True
            except OSError:
                continue
        return False

    def unlisted(self) -> list[str]:
        """The modules in its packages that RECORD does not list."""
        listed, found, cut = set(self._files), [], len(self._top) + 1
        for package in self._packages:
            if not os.path.isdir(f"{self._top}/{package}"):  # noqa: PTH112
                continue
            for parent, folders, names in walk_through_links(f"{self._top}/{package}"):
                folders[:] = [name for name in folders if name != "__pycache__"]
                paths = (f"{parent}/{name}"[cut:] for name in names if name.endswith(_IMPORTABLE))
                found += [path for path in paths if path not in listed]
        return sorted(found)

    def fingerprint(self, unlisted: list[str]) -> str:
        """Raises OSError for a file that cannot be read."""
        lines = []
        for path in (*self._files, *unlisted):
            try:
                lines.append(f"{path}\0{_content(Path(self._top, path))}")
            except FileNotFoundError:
                lines.append(f"{path}\0absent")
        if not any(not line.endswith("\0absent") for line in lines):
            raise ValueError(f"none of its files were found below {self._top!r}")
        return _hash_lines(lines)

    def watched(self, unlisted: list[str]) -> list[str]:
        """The absolute paths whose stats show the no-op check that nothing changed."""
        paths = [*self._files, *unlisted, *self._folders]
        if self._packages:
            paths = [path for path in paths if not _NOT_LOADED.search(path)]
        return [self._record, *(f"{self._top}/{path}" for path in paths)]


def _content(path: Path) -> str:
    return DigestFunction.BLAKE3.of_file(path).hash


def _lines_of_files(information: Path, observed: set[str]) -> list[str]:
    """`path\\0hash` of all files of a distribution without a usable RECORD. Adds what it looks at to `observed`."""
    top = _project_folder(information)
    names = _top_level_names(information) or {normalized(information.name.partition("-")[0]).replace("-", "_")}
    lines = []
    for name in sorted(names):
        for path in (top / name, top / "src" / name, top / f"{name}.py"):
            files = [path] if path.is_file() else _files_below(path, observed)
            observed.update(map(str, (path, *files)))
            lines += [f"{file.relative_to(top)}\0{_content(file)}" for file in files]
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
    if not folder.is_dir():
        return []
    for parent, folders, names in walk_through_links(folder):
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
