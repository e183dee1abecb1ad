"""The nodes that queries work on, targets and source files, and the edges between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlcbuild.workspace.label import Label
from mlcbuild.workspace.loader import LoadedWorkspace
from mlcbuild.workspace.observed import Observer
from mlcbuild.workspace.packages import PackageTree
from mlcbuild.workspace.pattern import Pattern, PatternKind, parse_pattern
from mlcbuild.workspace.schema import AttributeKind
from mlcbuild.workspace.source_files import source_paths
from mlcbuild.workspace.target import Target


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the workspace that targets name, or that is in a folder that they name. `path` is from the root."""

    path: str

    def __str__(self) -> str:
        return self.path


QueryNode = Label | SourceFile


def sort_key(node: QueryNode) -> tuple[int, str, str]:
    """Targets come before files, each in the order of names."""
    return (1, node.path, "") if isinstance(node, SourceFile) else (0, node.package, node.name)


class QueryGraph:
    """The targets of a loaded workspace and their source files."""

    def __init__(self, loaded: LoadedWorkspace) -> None:
        self.loaded = loaded
        self._files: dict[str, tuple[SourceFile, ...]] = {}
        self._dependencies: dict[Label, tuple[QueryNode, ...]] = {}

    def dependencies(self, node: QueryNode) -> tuple[QueryNode, ...]:
        """What a target's attributes name, in the schema's order: targets, and all files of named files and folders."""
        if isinstance(node, SourceFile):
            return ()
        known = self._dependencies.get(node)
        if known is None:
            known = self._dependencies[node] = tuple(dict.fromkeys(self._named_by(self.loaded.targets[node])))
        return known

    def files_of(self, path: str) -> tuple[SourceFile, ...]:
        """A file of the workspace, or all files below a folder; none if there is nothing at the path."""
        if path not in self._files:
            root = self.loaded.settings.root
            found: Iterable[str] = source_paths(root, path, Observer(root))[1] if (root / path).exists() else ()
            self._files[path] = tuple(SourceFile(each) for each in found)
        return self._files[path]

    def _named_by(self, target: Target) -> Iterable[QueryNode]:
        for label in target.referenced_labels:
            if label in self.loaded.targets:
                yield label
            elif not label.package.startswith("@"):
                yield from self.files_of(label.path)
        for attribute in target.schema.attributes:
            if attribute.kind is AttributeKind.PATH:
                path = target.get(attribute.name)
                if isinstance(path, str) and path and not path.startswith("/"):
                    yield from self.files_of(path)


def patterns_to_load(texts: Sequence[str], tree: PackageTree, current_package: str) -> tuple[str, ...]:
    """The patterns to load in order to evaluate a query with these patterns.

    A pattern may name a file instead of a target. Then the package to which it would belong as a target is loaded, as
    a whole, so that the name of no target is an error. Raises WorkspaceError.
    """
    patterns: list[str] = []
    for text in texts:
        pattern = parse_pattern(text, package=current_package, is_package=tree.is_package)
        if not may_be_file(pattern, tree):
            patterns.append(text)
        elif tree.is_package(pattern.package):
            patterns.append(f"//{pattern.package}:all")
    return tuple(dict.fromkeys(patterns))


def may_be_file(pattern: Pattern, tree: PackageTree) -> bool:
    """Whether there is a file or folder with the path that a pattern has as a label."""
    return (
        pattern.kind is PatternKind.TARGET
        and not pattern.package.startswith("@")
        and (tree.root / pattern.label.path).exists()
    )
