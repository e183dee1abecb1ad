"""Opens the workspace around a directory: the first step of every command that reads targets."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlcbuild.cli.arguments.options import STATE_DIRECTORY
from mlcbuild.cli.workspace.snapshots import Earlier, Snapshots
from mlcbuild.errors import UsageError, WorkspaceError
from mlcbuild.workspace.configuration import DEFAULT_CONFIGURATION
from mlcbuild.workspace.packages import BUILD_FILE
from mlcbuild.workspace.settings import WorkspaceSettings, find_root, load_settings, package_of

if TYPE_CHECKING:
    from mlcbuild.rules.analysis import Analysis
    from mlcbuild.rules.rule import Rule
    from mlcbuild.tuning.store import RecordStore
    from mlcbuild.workspace.label import Label
    from mlcbuild.workspace.loader import LoadedWorkspace


@dataclass(frozen=True, kw_only=True)
class OpenWorkspace:
    """A workspace's settings and rules, and the package that relative patterns start from.

    `began_nanoseconds` is the wall clock before anything of the workspace was read.
    """

    settings: WorkspaceSettings
    current_package: str
    began_nanoseconds: int

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

    @functools.cached_property
    def rules(self) -> Mapping[str, Rule]:
        """Every rule by name. Raises WorkspaceErrors. A command that finds snapshots needs none of them."""
        from mlcbuild.rules.registry import load_rules

        return load_rules(self.root, self.settings.rules)

    def load(self, patterns: Sequence[str], configuration: str, overrides: Sequence[str] = ()) -> LoadedWorkspace:
        """Load the targets that `patterns` match; "" is the default configuration, `overrides` are those of `--set`.

        Raises WorkspaceErrors, with what analysis finds of the targets that are loaded without one.
        """
        rule_files = [file.path for file in self.settings.rules]
        request = ("load", list(patterns), self.current_package, configuration, list(overrides), rule_files)

        def make(earlier: Earlier[LoadedWorkspace] | None) -> LoadedWorkspace:
            return self._load(patterns, configuration, overrides, earlier)

        loaded, digest = self._snapshots.recall(request, make)
        return replace(loaded, digest=digest, request=self._snapshots.name_of(request))

    def analyse(
        self,
        loaded: LoadedWorkspace,
        disk_cache: Path | None = None,
        *,
        requested: tuple[Label, ...] | None = None,
        expression: str = "",
    ) -> Analysis:
        """The actions of what was loaded here, or of other targets of it, which an `expression` found. `disk_cache` is
        that of the option, whose records tune kernels. Raises WorkspaceErrors.

        One snapshot is kept of each load and of each expression.
        """
        from mlcbuild.tuning.store import RecordStore

        records = RecordStore.of(disk_cache)
        asked = ""
        if requested is not None and requested != loaded.requested:
            loaded, asked = replace(loaded, requested=requested), expression
        if not loaded.request:
            return self._analyse(loaded, records, None)
        labels = [list(map(str, found)) for found in (loaded.requested, sorted(loaded.named))]
        made_of = hashlib.sha256(json.dumps([loaded.digest, *labels]).encode()).hexdigest() if loaded.digest else None
        request = ("analyse", loaded.request, asked, bool(loaded.named), str(records.root))

        def make(earlier: Earlier[Analysis] | None) -> Analysis:
            return self._analyse(loaded, records, earlier)

        return self._snapshots.recall(request, make, made_of=made_of)[0]

    @property
    def _snapshots(self) -> Snapshots:
        return Snapshots(root=self.root, state_directory=self.state_directory, began_nanoseconds=self.began_nanoseconds)

    def _load(
        self,
        patterns: Sequence[str],
        configuration: str,
        overrides: Sequence[str],
        earlier: Earlier[LoadedWorkspace] | None,
    ) -> LoadedWorkspace:
        from mlcbuild.rules.registry import Schemas
        from mlcbuild.rules.repositories import repositories
        from mlcbuild.workspace.earlier import EarlierLoad
        from mlcbuild.workspace.loader import LoadErrors, load

        before = earlier.value() if earlier else None
        try:
            return load(
                self.root,
                Schemas(self.rules),
                patterns,
                self.current_package,
                configuration=configuration or DEFAULT_CONFIGURATION,
                repositories=repositories(),
                overrides=overrides,
                earlier=EarlierLoad(loaded=before, digest=earlier.digest, changed=earlier.changed)
                if earlier and before
                else None,
            )
        except LoadErrors as errors:
            from mlcbuild.rules.analysis import with_errors_of_analysis

            raise with_errors_of_analysis(errors, self.rules) from None

    def _analyse(self, loaded: LoadedWorkspace, records: RecordStore, earlier: Earlier[Analysis] | None) -> Analysis:
        from mlcbuild.rules.analysis import analyse

        return analyse(loaded, self.rules, records, earlier.value() if earlier and not earlier.changed else None)


def open_workspace(directory: Path, *, to_load: bool = False) -> OpenWorkspace:
    """Find the workspace around `directory` and read its settings and rules. Raises WorkspaceError.

    With `to_load`, errors in the settings and in rule files are left to `OpenWorkspace.load`, which reports those of
    settings with those of targets.
    """
    began = time.time_ns()
    check_directory(directory)
    root = find_root(directory)
    settings = load_settings(root, tolerant=to_load)
    opened = OpenWorkspace(settings=settings, current_package=package_of(root, directory), began_nanoseconds=began)
    if not to_load:
        opened.rules  # noqa: B018  # Raises what is wrong with them.
    return opened


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
