"""All toolchains and their fingerprints, which are made from content and not from version strings."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlcbuild.engine.distributions import Distributions
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.errors import BuildError
from mlcbuild.plugins import plugins_in
from mlcbuild.suggestions import known_values
from mlcbuild.system_programs import PROGRAM_FOLDERS
from mlcbuild.toolchains import entries
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.toolchain import Toolchain

_KIND = "toolchains 1"


def names() -> tuple[str, ...]:
    """The names of all toolchains, sorted. Those that take a path are listed without one."""
    return plugins_in("toolchains/entries")


def every() -> tuple[Toolchain, ...]:
    """All toolchains, sorted by name."""
    return tuple(_entry(name) for name in names())


def find(name: str) -> tuple[Toolchain, str]:
    """The toolchain that an action declares as `name`, and the path in that name. Raises BuildError for an unknown
    name.
    """
    first, colon, path = name.partition(":")
    if first not in names():
        raise BuildError(f'unknown toolchain "{name}"', advice=(known_values(first, names()),))
    toolchain = _entry(first)
    if toolchain.takes_path and not path:
        raise BuildError(f'the toolchain "{name}" needs a path', advice=(f"write {first}:PATH",))
    if colon and not toolchain.takes_path:
        raise BuildError(f'the toolchain "{name}" takes no path', advice=(f"write {first}",))
    return toolchain, path


def _entry(name: str) -> Toolchain:
    toolchain = importlib.import_module(f"{entries.__name__}.{name}").TOOLCHAIN
    assert isinstance(toolchain, Toolchain)
    assert toolchain.name == name, f"the file of the toolchain {toolchain.name} is called {name}.py"
    return toolchain


class Toolchains:
    """Fingerprints, remembered by stat in `memory_path` (a file of the workspace's `.mlcbuild/`).

    `search_path` is where distributions are looked for (by default `sys.path`). Call `save` at the end of a
    build.
    """

    def __init__(
        self,
        memory_path: Path | None = None,
        *,
        search_path: Sequence[str] | None = None,
        program_folders: Sequence[str] = PROGRAM_FOLDERS,
    ) -> None:
        self._memory = JsonCache(memory_path, kind=_KIND)
        self._files = InstalledFiles(self._memory, search_path=search_path, program_folders=program_folders)

    @property
    def distributions(self) -> Distributions:
        return self._files.distributions

    @property
    def observed(self) -> frozenset[str]:
        """Absolute paths whose state decided any answer, some of them absent."""
        return self._files.observed

    def fingerprint(self, name: str) -> str:
        """64 hexadecimal digits for a toolchain as an action names it.

        Raises LocalEnvironmentError if the toolchain is not installed, BuildError for an unknown name.
        """
        toolchain, path = find(name)
        return hashlib.sha256("\n".join([name, *toolchain.contents(self._files, path)]).encode()).hexdigest()

    def fingerprints(self, names: Iterable[str]) -> dict[str, str]:
        """Name → fingerprint. Raises as `fingerprint` does."""
        return {name: self.fingerprint(name) for name in sorted(set(names))}

    def check(self, names: Iterable[str]) -> None:
        """Raise LocalEnvironmentError if one of these toolchains is not installed, and BuildError for an unknown one.

        It reads metadata only. A build calls it first, so that a missing toolchain is reported before anything runs.
        """
        for name in sorted(set(names)):
            toolchain, path = find(name)
            toolchain.check(self._files, path)

    def version(self, name: str) -> str:
        """What `mlcbuild info` shows for a toolchain without a path; "" if it is not installed."""
        return find(name)[0].version(self._files)

    def save(self) -> None:
        """Write the memory file, if anything changed."""
        self._memory.save()
