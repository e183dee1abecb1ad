"""The implementation digest of a stage: what its code means, found by reading sources without importing them.

It begins at the module of the stage function and those of its plug-ins, and follows import statements through
mlcbuild's own packages, also inside functions. A package's `__init__` comes with each of its modules. Each module
counts as its syntax tree without positions, comments and docstrings. Data files of these packages count where the code
names them, other distributions by the content of their files, and Python by its version. Imports under `if
TYPE_CHECKING:` never run, and do not count.

The code of a workspace's own stage is found in the same way. Its modules are named by their path from the workspace's
root. A module that they import is the workspace's where the workspace has it. Modules of mlcbuild import nothing from a
workspace.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.stat_cache import RACY_NANOSECONDS, identity_of, now_nanoseconds
from mlcbuild.engine.code_listing import WHOLE_MODULE, CodeListing
from mlcbuild.engine.distributions import Distributions
from mlcbuild.engine.interpreter import python_version
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.engine.normal_form import ModuleForm, read_module
from mlcbuild.engine.source_tree import SourceTree
from mlcbuild.errors import BuildError, LocalEnvironmentError, Location
from mlcbuild.regular_files import read_regular
from mlcbuild.suggestions import missing_module

# Raise this where the normal form changes, because remembered digests and those of stages change with it.
_KIND = "implementations 3"
_OF_PYTHON = sys.stdlib_module_names | {"__main__"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """The code of a stage. `digest` has 64 hexadecimal digits.

    `modules` are the modules of mlcbuild and the workspace that the stage may import. `files` are the workspace's files
    among them, with the data files that the code names, by their paths from the workspace's root.
    """

    digest: str
    modules: frozenset[str]
    distributions: tuple[str, ...]
    files: tuple[str, ...] = ()
    lines: tuple[tuple[str, ...], ...] = ()  # what the digest was made from: kind, name and digest of each part


class Implementations:
    """Digests of stage functions. They are remembered by stat in `cache_path`, a file of the workspace's `.mlcbuild/`.

    `root` is the folder of our packages, by default the one that mlcbuild is imported from; `packages` are their names.
    All other modules are looked for in `workspace`, where there is one. Call `save` at the end of a build.
    """

    def __init__(
        self,
        cache_path: Path | None = None,
        *,
        distributions: Distributions | None = None,
        root: Path | None = None,
        packages: Sequence[str] = ("mlcbuild",),
        workspace: Path | None = None,
    ) -> None:
        self._cache = JsonCache(cache_path, kind=f"{_KIND} {python_version()}")
        self._distributions = distributions or Distributions(self._cache)
        root = root if root is not None else Path(__file__).parents[2]
        self._own = SourceTree(root, shown_below=f"{root}/")
        self._workspace = SourceTree(workspace) if workspace is not None else None
        self._packages = frozenset(packages)
        self._modules: dict[str, ModuleForm] = {}
        self._identities: dict[str, list[int]] = {}
        self._found: dict[tuple[str, ...], Implementation] = {}
        self._listings: dict[tuple[str, ...], bytes] = {}

    @property
    def observed(self) -> frozenset[str]:
        """Absolute paths that decided any answer. Some of them do not exist."""
        trees = [tree.observed for tree in (self._own, self._workspace) if tree is not None]
        return frozenset(self._distributions.observed.union(*trees))

    def of(self, *modules: str) -> Implementation:
        """The implementation that starts from these modules: that of a stage function and those of its plug-ins.

        Raises BuildError for a module that does not exist, is not Python, or has the name of another one, and
        LocalEnvironmentError where a module or a distribution cannot be read.
        """
        if modules not in self._found:
            self._found[modules] = self._of_modules(modules)
        return self._found[modules]

    def listing(self, *modules: str) -> bytes:
        """What the implementation consists of, with the digest of each function, for people. It depends on nothing but
        the code. Raises as `of` does."""
        if modules not in self._listings:
            found = self.of(*modules)
            self._listings[modules] = CodeListing(
                digest=found.digest,
                parts={f"{kind} {name}": value for kind, name, value in found.lines if kind != "module"},
                modules={
                    name: {WHOLE_MODULE: form.digest, **dict(form.definitions)}
                    for name in sorted(found.modules)
                    for form in (self._module(name),)
                },
            ).encode()
        return self._listings[modules]

    def changed(self, *modules: str) -> str:
        """The file of a module whose meaning has changed since its digest was computed; "" where none has."""
        for name in sorted(self.of(*modules).modules):
            tree, path = self._source(name)
            try:
                identity = list(identity_of(os.stat(tree.location(path))))  # noqa: PTH116
                if identity == self._identities[name]:
                    continue
                if _read(name, tree, path).digest == self._modules[name].digest:
                    self._identities[name] = identity
                    continue
            except (OSError, BuildError):
                pass
            return tree.shown(path)
        return ""

    def save(self) -> None:
        """Write what is new to the cache."""
        self._cache.save()

    # The closure.

    def _of_modules(self, starts: tuple[str, ...]) -> Implementation:
        closure: set[str] = set()
        foreign: set[str] = set()
        waiting = [(start, self._source(start)[0]) for start in starts]
        while waiting:
            name, importer = waiting.pop()
            first = name.partition(".")[0]
            is_own = first in self._packages
            tree = self._own if is_own else importer
            if not is_own and (tree is self._own or tree.file(name) is None):
                if first and first not in sys.stdlib_module_names:
                    foreign.add(first)
                continue
            if name in closure or tree.file(name) is None:
                continue
            closure.add(name)
            if not is_own:
                self._refuse_namesakes(name, tree)
            parent = name.rpartition(".")[0]
            if parent:
                waiting.append((parent, tree))
            waiting.extend((imported, tree) for imported in self._module(name).imports)
        # `from package.module import name` looks for the name as a module too. And a folder may have no code itself.
        foreign.difference_update(name.partition(".")[0] for name in closure)
        distributions = self._distributions_of(foreign)
        data = self._data_files(closure)
        files = {path for path, tree in data.items() if tree is self._workspace}
        files.update(path for tree, path in map(self._source, closure) if tree is self._workspace)
        lines: list[list[str]] = [["python", python_version()]]
        lines += [["module", name, self._module(name).digest] for name in sorted(closure)]
        lines += [["data", path, self._content(tree, path)] for path, tree in sorted(data.items())]
        lines += [["distribution", name, fingerprint] for name, fingerprint in sorted(distributions.items())]
        return Implementation(
            digest=hashlib.sha256(json.dumps(lines).encode()).hexdigest(),
            modules=frozenset(closure),
            distributions=tuple(sorted(distributions)),
            files=tuple(sorted(files)),
            lines=(("python", "", python_version()), *(tuple(line) for line in lines[1:])),
        )

    def _distributions_of(self, packages: set[str]) -> dict[str, str]:
        """Distribution → fingerprint; "absent" where it is not installed, because its import may be optional."""
        fingerprints: dict[str, str] = {}
        for package in packages:
            names = self._distributions.providing(package)
            for name in names:
                fingerprints[name] = self._distributions.fingerprint(name)
            if not names:
                fingerprints[package] = "absent"
        return fingerprints

    def _data_files(self, closure: set[str]) -> dict[str, SourceTree]:
        """The data files beside the modules that the code names: path below the root of their tree → tree."""
        named: set[str] = set()
        found: dict[str, SourceTree] = {}
        folders: dict[str, SourceTree] = {}
        for name in closure:
            tree, path = self._source(name)
            folder = os.path.dirname(path)  # noqa: PTH120
            folders[folder] = tree
            for file_name in self._module(name).file_names:
                if "/" not in file_name:
                    named.add(file_name)
                elif ".." not in file_name.split("/") and tree.has_file(_below(folder, file_name)):
                    found[_below(folder, file_name)] = tree
        for folder, tree in folders.items():
            for name in tree.entries(folder) & named if folder else named:
                if tree.has_file(_below(folder, name)):
                    found[_below(folder, name)] = tree
        return found

    # Modules.

    def _tree_of(self, module: str) -> SourceTree | None:
        return self._own if module.partition(".")[0] in self._packages else self._workspace

    def _source(self, module: str) -> tuple[SourceTree, str]:
        """The tree and the file of a module."""
        tree = self._tree_of(module)
        path = tree.file(module) if tree is not None else None
        if tree is None or path is None:
            raise self._absent(module)
        return tree, path

    def _module(self, name: str) -> ModuleForm:
        if name not in self._modules:
            self._modules[name] = self._read_module(name)
        return self._modules[name]

    def _read_module(self, name: str) -> ModuleForm:
        tree, path = self._source(name)
        location = tree.location(path)
        try:
            status = os.stat(location)  # noqa: PTH116
            self._identities[name] = identity = list(identity_of(status))
            remembered = _from_cache(self._cache.get(f"module {location}"), identity)
            if remembered is not None:
                return remembered
            module = _read(name, tree, path)
        except OSError as error:
            raise LocalEnvironmentError(f"the module {name} cannot be read: {error}") from error
        if status.st_mtime_ns < now_nanoseconds() - RACY_NANOSECONDS:
            values = [module.digest, list(module.imports), list(module.file_names), dict(module.definitions)]
            self._cache.set(f"module {location}", [identity, *values])
        return module

    def _content(self, tree: SourceTree, path: str) -> str:
        return hashlib.sha256(read_regular(tree.location(path))).hexdigest()

    # Errors.

    def _absent(self, module: str) -> BuildError:
        """The error for a module that does not exist."""
        first = module.partition(".")[0]
        if first in self._packages:
            return BuildError(
                f"there is no module {module} in {first}",
                advice=(
                    f"names that begin with {first}. belong to {first}: put your stages into a folder of another name",
                ),
            )
        if self._workspace is None:
            return BuildError(f"there is no module {module}")
        folder = module.replace(".", "/").rpartition("/")[0]
        message, advice = missing_module(module, self._workspace.entries(folder))
        return BuildError(message, advice=advice)

    def _refuse_namesakes(self, module: str, tree: SourceTree) -> None:
        """Raise BuildError for a module of the workspace whose first name Python or a distribution has as well."""
        first = module.partition(".")[0]
        taken = "a module of Python" if first in _OF_PYTHON else ""
        for name in self._distributions.providing(first):
            if not self._distributions.is_working_tree(name, Path(tree.root)):
                taken = taken or f"a package of the installed distribution {name}"
        if not taken:
            return
        path = tree.file(module) or ""
        top = path.partition("/")[0] + ("/" if "/" in path else "")
        raise BuildError(
            f'the module {module} is ambiguous: "{first}" is also {taken}',
            location=Location(path=tree.shown(path)),
            advice=(f"rename {top}",),
        )


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _from_cache(remembered: object, identity: list[int]) -> ModuleForm | None:
    if not isinstance(remembered, list) or len(remembered) != 5 or remembered[0] != identity:
        return None
    _, digest, imports, file_names, definitions = remembered
    return ModuleForm(
        digest=str(digest),
        imports=tuple(imports),
        file_names=tuple(file_names),
        definitions=tuple(definitions.items()),
    )


def _read(name: str, tree: SourceTree, path: str) -> ModuleForm:
    """Read and parse a module. Raises OSError, and BuildError for a file that is not Python."""
    source = read_regular(tree.location(path))
    try:
        return read_module(source, name=name, is_package=path.endswith("/__init__.py"))
    except (SyntaxError, ValueError, RecursionError) as error:
        line, column = (max(getattr(error, place, None) or 0, 0) for place in ("lineno", "offset"))
        raise BuildError(
            f"the module {name} is not valid Python: {getattr(error, 'msg', error)}",
            location=Location(path=tree.shown(path), line=line, column=column),
        ) from error
