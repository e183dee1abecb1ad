"""The parts that the doctor examines for a command's options, in the order of its output."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cli.arguments.options import RECORD_DIRECTORY, GlobalOptions
from mlcbuild.cli.cache.maintenance import store_root
from mlcbuild.cli.log.record_check import check_records
from mlcbuild.cli.settings.execution import ExecutionOptions, ResolvedExecution, resolve_execution
from mlcbuild.cli.settings.remote import RemoteOptions, resolve_remote
from mlcbuild.cli.workspace.opening import OpenWorkspace, is_in_workspace, open_workspace
from mlcbuild.doctor.check import Check, Part
from mlcbuild.doctor.disk_cache import disk_checks
from mlcbuild.doctor.distributions import distribution_checks
from mlcbuild.doctor.examination import UnreadableWorkspace
from mlcbuild.doctor.finding import Finding, skipped
from mlcbuild.doctor.machine import machine_checks
from mlcbuild.doctor.toolchains import toolchain_checks
from mlcbuild.doctor.workspace import workspace_checks
from mlcbuild.errors import UsageError, WorkspaceError, WorkspaceErrors
from mlcbuild.suggestions import known_values
from mlcbuild.workspace.loader import LoadedWorkspace
from mlcbuild.workspace.pattern import parse_pattern
from mlcbuild.workspace.settings import WorkspaceSettings

if TYPE_CHECKING:
    from mlcbuild.cache.remote.configuration import RemoteConfiguration

_EVERYTHING = "//..."


class Parts:
    """Makes the parts of one command. The workspace is opened once, for the first part that needs it."""

    def __init__(
        self, disk_cache: Path | None, remote: RemoteOptions, execution: ExecutionOptions, options: GlobalOptions
    ) -> None:
        self._disk_root = store_root(disk_cache)
        self._remote_options = remote
        self._execution_options = execution
        self._options = options

    def chosen(self, names: Sequence[str]) -> list[Part]:
        """All parts, or those with these names. Raises UsageError for an unknown name."""
        made = {
            "machine": lambda: [Part(name="machine", checks=machine_checks)],
            "toolchains": lambda: [Part(name="toolchains", checks=lambda: toolchain_checks(self._toolchains))],
            "distributions": lambda: [Part(name="distributions", checks=distribution_checks)],
            "workspace": lambda: [Part(name="workspace", checks=self._workspace_checks)],
            "disk": lambda: [Part(name="disk", checks=lambda: disk_checks(self._disk_root, self._function()))],
            "remote": self._remote,
            "signing": lambda: self._signing(is_reported=not names or "remote" in names),
            "ray": self._ray,
        }
        for name in names:
            if name not in made:
                raise UsageError(f'unknown part "{name}"', advice=(known_values(name, made),))
        return [part for name, parts in made.items() if not names or name in names for part in parts()]

    def _remote(self) -> list[Part]:
        """A part for each server, or one that says why there is none."""
        try:
            configuration = self._configuration
        except Exception as error:
            return [Part(name="remote", checks=functools.partial(_raising, error))]
        if configuration is None:
            return [Part(name="remote", checks=_without_remote)]
        from mlcbuild.cache.remote.probing import open_probe
        from mlcbuild.doctor.remote import impatient, remote_part

        function = self._function()
        places = [configuration.in_namespace(), configuration] if configuration.namespace else [configuration]
        return [
            remote_part(
                open_probe(impatient(place), function),
                address=place.shown,
                may_write=configuration.policy.sends and place is places[0],
                has_namespace=place is not places[0],
            )
            for place in places
        ]

    def _signing(self, *, is_reported: bool) -> list[Part]:
        """The part of signatures; without a usable remote the reason, unless the part `remote` already gives it."""
        try:
            configuration = self._configuration
        except Exception as error:
            return [] if is_reported else [Part(name="signing", checks=functools.partial(_raising, error))]
        if configuration is None:
            return [] if is_reported else [Part(name="signing", checks=_without_remote)]
        from mlcbuild.doctor.signing import signing_checks

        return [Part(name="signing", checks=functools.partial(signing_checks, configuration))]

    def _ray(self) -> list[Part]:
        """The part of a cluster, which is examined if the settings choose Ray or have its address."""
        from mlcbuild.doctor.ray_cluster import ray_part

        try:
            execution = self._execution
            settings = execution.ray_settings(jobs=len(os.sched_getaffinity(0)), remote=None)
        except Exception as error:
            return [Part(name="ray", checks=functools.partial(_raising, error))]
        is_chosen = execution.uses_ray or execution.ray_address
        return [
            ray_part(
                settings if is_chosen else None,
                store=self._disk_root,
                function=self._function(),
                environment=self._options.environment,
            )
        ]

    @property
    def _execution(self) -> ResolvedExecution:
        return resolve_execution(self._execution_options, self._options.environment, self._settings)

    @property
    def _settings(self) -> WorkspaceSettings:
        found = self._workspace
        return found.settings if found else WorkspaceSettings(root=self._options.directory, name="")

    @functools.cached_property
    def _configuration(self) -> RemoteConfiguration | None:
        resolved = resolve_remote(self._remote_options, self._options.environment, self._settings)
        return resolved.configuration if resolved and resolved.configuration.is_used else None

    @functools.cached_property
    def _workspace(self) -> OpenWorkspace | None:
        directory = self._options.directory
        if not is_in_workspace(directory):
            return None
        try:
            return open_workspace(directory, to_load=True)
        except WorkspaceErrors as error:
            raise UnreadableWorkspace(error.errors) from error
        except WorkspaceError as error:
            raise UnreadableWorkspace((error,)) from error

    def _toolchains(self) -> Mapping[str, str]:
        """The toolchains that targets of the workspace need, each with the label of the first. Of a workspace with
        errors nothing is known; its own part tells them.
        """
        from mlcbuild.cli.build.targets import toolchains_of

        found: dict[str, str] = {}
        with contextlib.suppress(Exception):
            if self._workspace is not None:
                analysis = self._workspace.analyse(self._workspace.load([_EVERYTHING], ""))
                for action in analysis.actions:
                    for name in toolchains_of([action]):
                        found.setdefault(name, action.owner)
        return found

    def _function(self) -> DigestFunction:
        """The workspace's digest function; BLAKE3 outside a workspace, or if its settings have errors."""
        try:
            return DigestFunction(self._workspace.settings.digest) if self._workspace else DigestFunction.BLAKE3
        except Exception:
            return DigestFunction.BLAKE3

    def _workspace_checks(self) -> Sequence[Check]:
        found = self._workspace
        if found is None:
            finding = skipped(f"none at or above {self._options.directory}")
            return (Check(name="found", examine=lambda: finding),)
        return workspace_checks(
            name=found.settings.name,
            root=found.root,
            state=found.state_directory,
            outputs=found.output_root,
            count_targets=lambda: _count_targets(found.load([_EVERYTHING], "")),
            read_history=lambda: check_records(found.state_directory / RECORD_DIRECTORY),
        )


def _without_remote() -> Sequence[Check]:
    def examine() -> Finding:
        return skipped("none is configured", "to test one, give --remote=ADDRESS: see `mlcbuild help remote`")

    return (Check(name="configured", examine=examine),)


def _raising(error: Exception) -> NoReturn:
    raise error


def _count_targets(loaded: LoadedWorkspace) -> int:
    """The workspace's own targets, without the built-in ones that they name."""
    return len(loaded.select([parse_pattern(_EVERYTHING)], with_manual=True))
