"""Opens the workspace around a directory: the first step of every command that reads targets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cli.arguments.options import STATE_DIRECTORY
from mlcbuild.errors import UsageError, WorkspaceError
from mlcbuild.rules.analysis import with_errors_of_analysis
from mlcbuild.rules.registry import load_rules
from mlcbuild.rules.repositories import repositories
from mlcbuild.rules.rule import Rule
from mlcbuild.workspace.configuration import DEFAULT_CONFIGURATION
from mlcbuild.workspace.loader import BUILD_FILE, LoadedWorkspace, LoadErrors, load
from mlcbuild.workspace.settings import WorkspaceSettings, find_root, load_settings, package_of


@dataclass(frozen=True, kw_only=True)
class OpenWorkspace:
    """A workspace's settings and rules, and the package that relative patterns start from."""

    settings: WorkspaceSettings
    rules: Mapping[str, Rule]
    current_package: str

    @property
    def root(self) -> Path:
        return self.settings.root

    @property
    def state_directory(self) -> Path:
        """The folder of local state: logs, state of the last build."""
        return self.root / STATE_DIRECTORY

    @property
    def output_root(self) -> Path:
        """The folder of all outputs."""
        return self.root / self.settings.output

    def load(self, patterns: Sequence[str], configuration: str, overrides: Sequence[str] = ()) -> LoadedWorkspace:
        """Load the targets that `patterns` match; "" is the default configuration, `overrides` are those of `--set`.

        Raises WorkspaceErrors, with what analysis finds of the targets that are loaded without one.
        """
        schemas = {name: rule.schema for name, rule in self.rules.items()}
        try:
            return load(
                self.root,
                schemas,
                patterns,
                self.current_package,
                configuration=configuration or DEFAULT_CONFIGURATION,
                repositories=repositories(),
                overrides=overrides,
            )
        except LoadErrors as errors:
            raise with_errors_of_analysis(errors, self.rules) from None


def open_workspace(directory: Path, *, to_load: bool = False) -> OpenWorkspace:
    """Find the workspace around `directory` and read its settings and rules. Raises WorkspaceError.

    With `to_load`, errors in the settings are left to `OpenWorkspace.load`, which reports them with those of targets.
    """
    check_directory(directory)
    root = find_root(directory)
    settings = load_settings(root, tolerant=to_load)
    rules = load_rules(root, settings.rules)
    return OpenWorkspace(settings=settings, rules=rules, current_package=package_of(root, directory))


def check_directory(directory: Path) -> None:
    """Raise UsageError for a path that is not a directory, or that no file could have."""
    if not os.path.isdir(directory):  # noqa: PTH112  `Path.is_dir` raises OSError for a path that is too long
        raise UsageError(f"{directory} is not a directory", advice=("check the argument of --workspace",))


def files_searched(root: Path, directory: Path) -> set[str]:
    """The paths that the search for `root` from `directory` looked at, including those that do not exist."""
    folders = (directory.absolute(), *directory.absolute().parents)
    return {str(folder / BUILD_FILE) for folder in folders if folder == root or root in folder.parents}


def is_in_workspace(directory: Path) -> bool:
    """Whether there is a workspace at or above `directory`."""
    try:
        find_root(directory)
    except WorkspaceError:
        return False
    return True
