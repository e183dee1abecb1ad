"""Packages: the folders of a workspace with a `BUILD.toml`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from mlcbuild.errors import WorkspaceError
from mlcbuild.workspace.label import path_in_repository
from mlcbuild.workspace.observed import Observer
from mlcbuild.workspace.toml import TomlFile, parse, read

BUILD_FILE = "BUILD.toml"


class PackageTree:
    """Finds packages below a root, and reads each `BUILD.toml` once.

    There are no packages in hidden folders, `ignored` folders (paths from the root), and other workspaces below this
    one. The search for packages does not follow symbolic links to folders. `observer` has the paths from the root whose
    state has affected anything. `repositories` are built in: the text of the root package's
    `BUILD.toml` by name. They have no other package, and are below no package of the workspace. Of the packages `known`
    no file is read to see whether it is that of another workspace.
    """

    def __init__(
        self,
        root: Path,
        *,
        ignored: frozenset[str] = frozenset(),
        repositories: Mapping[str, str] | None = None,
        known: frozenset[str] = frozenset(),
    ) -> None:
        self.root = root
        self.repositories = repositories or {}
        self._known = known
        self.observer = Observer(root)
        self._ignored = ignored
        self._has_file: dict[str, bool] = {}
        self._files: dict[str, TomlFile | WorkspaceError] = {}
        self._foreign: dict[str, bool] = {"": False}

    def ignoring(self, ignored: frozenset[str]) -> PackageTree:
        """The same tree without these folders. Files that were already read are kept."""
        tree = PackageTree(self.root, ignored=ignored, repositories=self.repositories, known=self._known)
        tree._files.update(self._files)
        tree.observer = self.observer
        return tree

    def build_file(self, package: str) -> str:
        """The package's file, as a path from the root."""
        return f"{package.removesuffix('/')}/{BUILD_FILE}" if package else BUILD_FILE

    def is_package(self, package: str) -> bool:
        """Whether it is a package of this workspace, or of a built-in repository."""
        if path_in_repository(package) is not None:
            return self._text_of_repository(package) is not None
        return self._has_build_file(package) and not self.is_foreign(package)

    def is_foreign(self, package: str) -> bool:
        """Whether the folder is in an ignored or hidden folder, or in another workspace below this one."""
        if path_in_repository(package) is not None:
            return False
        known = self._foreign.get(package)
        if known is None:
            parent, _, segment = package.rpartition("/")
            known = (
                self.is_foreign(parent)
                or segment.startswith(".")
                or package in self._ignored
                or self._is_workspace(package)
            )
            self._foreign[package] = known
        return known

    def file(self, package: str) -> TomlFile:
        """The package's parsed file. Raises WorkspaceError."""
        found = self._files.get(package)
        if found is None:
            path = self.build_file(package)
            built_in = self._text_of_repository(package)
            try:
                if built_in is not None:
                    found = parse(built_in, path)
                else:
                    self.observer.will_read(path)
                    found = read(self.root / path, path)
            except WorkspaceError as error:
                found = error
            self._files[package] = found
        if isinstance(found, WorkspaceError):
            raise found
        return found

    def below(self, package: str) -> Iterator[str]:
        """Every package at and below a folder, parents first, in the order of names."""
        if path_in_repository(package) is not None:
            yield from (package,) if self.is_package(package) else ()
        elif not self.is_foreign(package):
            yield from self._walk(package)

    def _walk(self, start: str) -> Iterator[str]:
        pending = [start]
        while pending:
            package = pending.pop()
            self.observer.will_read(package or ".")
            try:
                with os.scandir(self.root / package if package else self.root) as entries:
                    folders = []
                    has_file = False
                    for entry in entries:
                        name = entry.name
                        if name == BUILD_FILE:
                            has_file = self.observer.is_file(self.build_file(package))  # It may be a link.
                        elif not name.startswith(".") and entry.is_dir(follow_symlinks=False):
                            folders.append(name)
            except OSError:
                # A folder that has vanished or is not readable has no packages.
                continue
            self._has_file[package] = has_file
            if has_file and package and self._is_workspace(package):
                self._foreign[package] = True
                continue
            self._foreign[package] = False
            if has_file:
                yield package
            for name in sorted(folders, reverse=True):
                folder = f"{package}/{name}" if package else name
                if folder not in self._ignored:
                    pending.append(folder)

    def _text_of_repository(self, package: str) -> str | None:
        """The text of a built-in package; None for every other one."""
        return self.repositories.get(package[1:-2]) if path_in_repository(package) == "" else None

    def _has_build_file(self, package: str) -> bool:
        known = self._has_file.get(package)
        if known is None:
            path = self.build_file(package)
            known = self._has_file[package] = self.observer.is_file(path)
        return known

    def _is_workspace(self, package: str) -> bool:
        if package in self._known or not self._has_build_file(package):
            return False
        try:
            return "workspace" in self.file(package).content
        except WorkspaceError:
            return False
