"""What there is to examine for a command's options, in the order in which it is told."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cli.cache_maintenance import store_root
from mlcbuild.cli.opening import OpenWorkspace, is_in_workspace, open_workspace
from mlcbuild.cli.options import GlobalOptions
from mlcbuild.cli.remote_settings import RemoteFlags
from mlcbuild.doctor.check import Check, Part
from mlcbuild.doctor.disk_cache import disk_checks
from mlcbuild.doctor.distributions import distribution_checks
from mlcbuild.doctor.finding import skipped
from mlcbuild.doctor.machine import machine_checks
from mlcbuild.doctor.programs import program_checks
from mlcbuild.doctor.workspace import workspace_checks
from mlcbuild.errors import UsageError
from mlcbuild.workspace.problems import known_values

NAMES = ("machine", "programs", "distributions", "workspace", "disk", "remote", "signing")
_EVERYTHING = "//..."


class Parts:
    """Everything around one command. A workspace is opened once, by the first part that needs it."""

    def __init__(self, disk_cache: Path | None, flags: RemoteFlags, options: GlobalOptions) -> None:
        self._disk_root = store_root(disk_cache)
        self._flags = flags
        self._options = options

    def chosen(self, names: Sequence[str]) -> list[Part]:
        """All parts, or those of the names. Raises UsageError for a name that no part has."""
        for name in names:
            if name not in NAMES:
                raise UsageError(f'unknown part "{name}"', advice=(known_values(name, NAMES),))
        return [part for part in self._all() if not names or part.name in names]

    def _all(self) -> list[Part]:
        return [
            Part(name="machine", checks=machine_checks),
            Part(name="programs", checks=program_checks),
            Part(name="distributions", checks=distribution_checks),
            Part(name="workspace", checks=self._workspace_checks),
            Part(name="disk", checks=lambda: disk_checks(self._disk_root, self._function())),
        ]

    @functools.cached_property
    def _workspace(self) -> OpenWorkspace | None:
        directory = self._options.directory
        return open_workspace(directory) if is_in_workspace(directory) else None

    def _function(self) -> DigestFunction:
        """The workspace's; BLAKE3 outside of one, and where its settings have mistakes, which are told elsewhere."""
        try:
            return DigestFunction(self._workspace.settings.digest) if self._workspace else DigestFunction.BLAKE3
        except Exception:
            return DigestFunction.BLAKE3

    def _workspace_checks(self) -> Sequence[Check]:
        found = self._workspace
        if found is None:
            told = skipped(f"none at or above {self._options.directory}")
            return (Check(name="found", examine=lambda: told),)
        return workspace_checks(
            name=found.settings.name,
            root=found.root,
            state=found.state_directory,
            outputs=found.output_root,
            count_targets=lambda: len(found.load([_EVERYTHING], "").targets),
        )
