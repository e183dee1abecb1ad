"""Imports our packages from their sources, never from stale bytecode.

Python trusts a `.pyc` file if the recorded size and modification time in seconds match the source. So an edit within
the same second that keeps the size would run the old code under the new code's key. Here compiled code is cached by
the SHA-256 of the source instead. A stage only reads that cache, because it could leave anything there for the next
one: the build compiles the same source once more, and writes. The fork server loads this file by path. It imports
only the standard library.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import sys
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path

FOUND: list[str] = []  # the full names of modules that were found here, in order
COMPILED: list[str] = []  # the files whose code was not in the cache


class ContentLoader(SourceFileLoader):
    """A source loader with a bytecode cache that is keyed by the source. `cache` is its directory; "": none."""

    cache = ""

    def get_code(self, fullname: str) -> types.CodeType | None:
        path = self.get_filename(fullname)
        source = self.get_data(path)
        if self.cache:
            try:
                code = marshal.loads(_entry(self.cache, path, source).read_bytes())
            except (OSError, ValueError, EOFError, TypeError):
                code = None
            if isinstance(code, types.CodeType):
                return code
        code = self.source_to_code(source, path)
        assert isinstance(code, types.CodeType)
        COMPILED.append(path)
        return code


def keep_compiled(path: str, source: bytes, cache: str) -> None:
    """Compile a source and write it to a cache, for the next stage. If that is not possible, each compiles it."""
    entry = _entry(cache, path, source)
    temporary = entry.with_name(f"{entry.name}.{os.urandom(8).hex()}")
    try:
        code = compile(source, path, "exec", dont_inherit=True, optimize=0)
        entry.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(marshal.dumps(code))
        temporary.replace(entry)
    except (OSError, ValueError, SyntaxError, RecursionError):
        temporary.unlink(missing_ok=True)


def _entry(cache: str, path: str, source: bytes) -> Path:
    return Path(cache, hashlib.sha256(b"\0".join((importlib.util.MAGIC_NUMBER, os.fsencode(path), source))).hexdigest())


class DirectoryFinder:
    """Finds the top-level modules `names` in `directories`, and everything in them. Only Python sources count."""

    def __init__(self, directories: Sequence[str], names: Sequence[str]) -> None:
        self._directories = tuple(directories)
        self._names = frozenset(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        del target
        if fullname.partition(".")[0] not in self._names:
            return None
        folders: list[str] = []
        for entry in self._directories if path is None else path:
            # By name and not by listing: a stage may not see what else is in the folder.
            location = os.path.join(entry, fullname.rpartition(".")[2])  # noqa: PTH118
            for file in (os.path.join(location, "__init__.py"), f"{location}.py"):  # noqa: PTH118
                if os.path.isfile(file):  # noqa: PTH113
                    FOUND.append(fullname)
                    _keep_others_from(location)
                    return spec_from_file_location(fullname, file, loader=ContentLoader(fullname, file))
            if os.path.isdir(location):  # noqa: PTH112
                folders.append(location)
        if not folders:
            return None
        for folder in folders:
            _keep_others_from(folder)
        package = ModuleSpec(fullname, None, is_package=True)  # folders without __init__.py
        package.submodule_search_locations = folders
        return package


def _keep_others_from(folder: str) -> None:
    """Keep Python's own finder from listing a folder for modules that are not found here."""
    sys.path_importer_cache[folder] = None


class HidingFinder:
    """Makes modules look as if they were not installed, so that libraries do the same on every machine."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> None:
        del path, target
        if fullname.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {fullname!r} (hidden from actions)", name=fullname)


def install(*, package_root: str, directories: Sequence[str], names: Sequence[str], cache: str) -> None:
    """Find `mlcbuild` in `package_root` and the top-level modules `names` in `directories`, before any other finder."""
    ContentLoader.cache = cache
    sys.meta_path[:0] = [DirectoryFinder([package_root], ["mlcbuild"]), DirectoryFinder(directories, names)]
