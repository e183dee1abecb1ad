"""The implementation digest of a stage: its code by meaning, found by reading sources, never by importing
them.

From the module of a stage function, import statements are followed through our own packages, those inside
functions too; a package's `__init__` comes with each of its modules. Each module counts as its syntax tree
without positions, comments and docstrings. Data files of those packages count where the code names them,
other distributions by the content of their files, and Python by its version. Imports under `if
TYPE_CHECKING:` never run and do not count.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.stat_memory import SETTLING_NANOSECONDS, identity_of, now_nanoseconds
from mlcbuild.engine.distributions import Distributions
from mlcbuild.engine.memory import JsonMemory
from mlcbuild.engine.normal_form import ModuleForm, read_module
from mlcbuild.engine.toolchains import python_version
from mlcbuild.errors import BuildError, InternalError, Location

# Raise this where the normal form changes: remembered digests and those of stages change with it.
_KIND = "implementations 2"
_FORMS = ("", ".py", "/__init__.py")  # of what a top-level package may be


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """A stage's code: `digest` is 64 hexadecimal digits; `modules` are our own modules that it may import."""

    digest: str
    modules: frozenset[str]
    distributions: tuple[str, ...]


class Implementations:
    """Digests of stage functions, remembered by stat in `memory_path` (a file of the workspace's
    `.mlcbuild/`).

    `root` is the folder that holds our packages, by default the one mlcbuild is imported from; `packages` are
    their names. Call `save` at the end of a build.
    """

    def __init__(
        self,
        memory_path: Path | None = None,
        *,
        distributions: Distributions | None = None,
        root: Path | None = None,
        packages: Sequence[str] = ("mlcbuild",),
    ) -> None:
        self._memory = JsonMemory(memory_path, kind=f"{_KIND} {python_version()}")
        self._distributions = distributions or Distributions(self._memory)
        self._root = str(root if root is not None else Path(__file__).parents[2])
        self._packages = frozenset(packages)
        self._folders: dict[str, frozenset[str]] = {}
        self._modules: dict[str, ModuleForm] = {}
        self._found: dict[str, Implementation] = {}
        self._observed: set[str] = set()

    @property
    def observed(self) -> frozenset[str]:
        """Absolute paths whose state decided any answer, some of them absent."""
        return frozenset(self._observed | self._distributions.observed)

    def of(self, function: str) -> Implementation:
        """The implementation of `package.module:name`.

        Raises BuildError for a source that is not Python, InternalError where there is no such module, and
        LocalEnvironmentError where a distribution cannot be read.
        """
        module, _, _ = function.partition(":")
        if module not in self._found:
            self._found[module] = self._of_module(module)
        return self._found[module]

    def save(self) -> None:
        """Write what was learnt; does nothing where nothing was."""
        self._memory.save()

    # The closure

    def _of_module(self, start: str) -> Implementation:
        if self._file(start) is None:
            raise InternalError(f"there is no module {start} below {self._root}")
        closure: set[str] = set()
        foreign: set[str] = set()
        waiting = [start]
        while waiting:
            name = waiting.pop()
            first = name.partition(".")[0]
            if first not in self._packages:
                if first not in sys.stdlib_module_names:
                    foreign.add(first)
                continue
            if name in closure or self._file(name) is None:
                continue
            closure.add(name)
            parent = name.rpartition(".")[0]
            if parent:
                waiting.append(parent)
            waiting.extend(self._module(name).imports)
        distributions = self._distributions_of(foreign)
        lines: list[list[str]] = [["python", python_version()]]
        lines += [["module", name, self._module(name).digest] for name in sorted(closure)]
        lines += [["data", path, self._content(path)] for path in self._data_files(closure)]
        lines += [["distribution", name, fingerprint] for name, fingerprint in sorted(distributions.items())]
        return Implementation(
            digest=hashlib.sha256(json.dumps(lines).encode()).hexdigest(),
            modules=frozenset(closure),
            distributions=tuple(sorted(distributions)),
        )

    def _distributions_of(self, packages: set[str]) -> dict[str, str]:
        """Distribution → fingerprint.

        One that is not installed counts as absent: its import may be optional.
        """
        fingerprints: dict[str, str] = {}
        for package in packages:
            names = self._distributions.providing(package)
            for name in names:
                fingerprints[name] = self._distributions.fingerprint(name)
            if not names:
                fingerprints[package] = "absent"
        return fingerprints

    def _data_files(self, closure: set[str]) -> list[str]:
        """Files beside the closure's modules that the code names, by path below the root."""
        named: set[str] = set()
        found: set[str] = set()
        folders = {os.path.dirname(self._file(name) or "") for name in closure}  # noqa: PTH120
        for name in closure:
            folder = os.path.dirname(self._file(name) or "")  # noqa: PTH120
            for file_name in self._module(name).file_names:
                if "/" not in file_name:
                    named.add(file_name)
                elif ".." not in file_name.split("/"):
                    self._observed.add(f"{self._root}/{folder}/{file_name}")
                    if os.path.isfile(f"{self._root}/{folder}/{file_name}"):  # noqa: PTH113
                        found.add(f"{folder}/{file_name}")
        for folder in folders:
            found.update(f"{folder}/{name}" for name in self._entries(folder) & named)
        return sorted(found)

    # Files

    def _entries(self, folder: str) -> frozenset[str]:
        if folder not in self._folders:
            if folder:
                self._observed.add(f"{self._root}/{folder}")
            else:
                # The root may be anybody's folder, where much changes that is none of ours.
                self._observed.update(f"{self._root}/{package}{end}" for package in self._packages for end in _FORMS)
            try:
                entries = frozenset(os.listdir(f"{self._root}/{folder}"))  # noqa: PTH208
            except OSError:
                entries = frozenset()
            self._folders[folder] = entries
        return self._folders[folder]

    def _file(self, module: str) -> str | None:
        """The source of a module by path below the root; None where there is no such module of ours."""
        *parents, name = module.split(".")
        folder = "/".join(parents)
        if f"{name}.py" in self._entries(folder):
            return f"{folder}/{name}.py" if folder else f"{name}.py"
        inside = f"{folder}/{name}" if folder else name
        if name in self._entries(folder) and "__init__.py" in self._entries(inside):
            return f"{inside}/__init__.py"
        return None

    def _module(self, name: str) -> ModuleForm:
        if name not in self._modules:
            self._modules[name] = self._read_module(name)
        return self._modules[name]

    def _read_module(self, name: str) -> ModuleForm:
        path = self._file(name)
        if path is None:
            raise InternalError(f"there is no module {name} below {self._root}")
        location = Path(self._root, path)
        self._observed.add(str(location))
        try:
            status = os.stat(location)  # noqa: PTH116
            identity = list(identity_of(status))
            remembered = _from_memory(self._memory.get(f"module {location}"), identity)
            if remembered is not None:
                return remembered
            source = location.read_bytes()
        except OSError as error:
            raise InternalError(f"the module {name} cannot be read: {error}") from error
        module = _parse(name, source, location, is_package=path.endswith("/__init__.py"))
        if status.st_mtime_ns < now_nanoseconds() - SETTLING_NANOSECONDS:
            values = [module.digest, list(module.imports), list(module.file_names)]
            self._memory.set(f"module {location}", [identity, *values])
        return module

    def _content(self, path: str) -> str:
        self._observed.add(f"{self._root}/{path}")
        with Path(self._root, path).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


def _from_memory(remembered: object, identity: list[int]) -> ModuleForm | None:
    if not isinstance(remembered, list) or len(remembered) != 4 or remembered[0] != identity:
        return None
    _, digest, imports, file_names = remembered
    return ModuleForm(digest=str(digest), imports=tuple(imports), file_names=tuple(file_names))


def _parse(name: str, source: bytes, location: Path, *, is_package: bool) -> ModuleForm:
    try:
        return read_module(source, name=name, is_package=is_package)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 0
        raise BuildError(
            f"the module {name} is not valid Python: {getattr(error, 'msg', error)}",
            location=Location(path=str(location), line=line),
        ) from error
