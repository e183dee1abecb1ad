"""Where actions run: `[execution]`, its variables and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlcbuild.cli.settings.sources import (
    Precedence,
    Settings,
    merged,
    option_setting,
    table_settings,
    variable_settings,
)
from mlcbuild.cli.settings.user_file import user_settings
from mlcbuild.workspace.execution import EXECUTION_SETTINGS, EXECUTORS, WORKERS
from mlcbuild.workspace.settings import WorkspaceSettings

if TYPE_CHECKING:
    from mlcbuild.cache.remote.configuration import RemoteConfiguration
    from mlcbuild.execution.ray.settings import RaySettings

LOCAL, RAY, AUTO = EXECUTORS
_COLD, WARM = WORKERS
_WITH_VARIABLES = ("executor", "ray_address", "sandbox", "workers")
VARIABLES = {
    f"MLCBUILD_{attribute.name.upper()}": attribute
    for attribute in EXECUTION_SETTINGS
    if attribute.name in _WITH_VARIABLES
}
"""Each variable with its setting."""


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """The options of the command line; "" and None for an option that was not given."""

    executor: str = ""
    ray_address: str = ""
    sandbox: bool | None = None
    keep_failed: bool = False  # the directories of failed actions
    workers: str = ""


@dataclass(frozen=True, kw_only=True)
class ResolvedExecution:
    """What a build uses. `executor` is `local`, `ray`, or, with a cluster to choose, `auto`."""

    executor: str = LOCAL
    ray_address: str = ""
    sandbox: bool = True
    keep_failed: bool = False
    warm_workers: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    may_scale_to: tuple[Mapping[str, Any], ...] = ()
    connect_seconds: float = 120.0
    reconnect_seconds: float = 60.0

    @property
    def uses_ray(self) -> bool:
        return self.executor != LOCAL

    def ray_settings(self, *, jobs: int, remote: RemoteConfiguration | None) -> RaySettings:
        from mlcbuild.execution.machine_resources import MachineResources
        from mlcbuild.execution.ray.settings import RaySettings

        return RaySettings(
            address=self.ray_address,
            jobs=jobs,
            labels=self.labels,
            may_scale_to=tuple(
                MachineResources(
                    cpus=kind["cpus"],
                    memory_bytes=kind.get("memory") or 0,
                    gpus=float(kind.get("gpus", 0)),
                    labels=tuple(sorted(kind.get("labels", {}).items())),
                )
                for kind in self.may_scale_to
            ),
            remote=remote,
            sandbox=self.sandbox,
            connect_seconds=self.connect_seconds,
            reconnect_seconds=self.reconnect_seconds,
        )


def resolve_execution(
    options: ExecutionOptions, environment: Mapping[str, str], workspace: WorkspaceSettings
) -> ResolvedExecution:
    """Merge all sources. Raises UsageError for options and variables, WorkspaceError for files."""
    user = user_settings(environment)
    settings = merged(
        table_settings(workspace.execution, workspace.root, Precedence.WORKSPACE),
        table_settings(user.execution, user.folder, Precedence.USER_FILE),
        variable_settings(environment, VARIABLES),
        _option_settings(options),
    )
    node_kinds: dict[str, Mapping[str, Any]] = {}
    for table in (workspace.execution, user.execution):
        if table is not None:
            node_kinds.update(table.node_kinds)

    def value(name: str, default: Any) -> Any:
        return settings[name].value if name in settings else default

    if "ray_address" in settings:
        from mlcbuild.execution.ray.settings import check_address

        with settings["ray_address"].source.names_errors():
            check_address(settings["ray_address"].value)
    executor = value("executor", LOCAL)
    if executor == AUTO and "ray_address" not in settings:
        executor = LOCAL
    return ResolvedExecution(
        executor=executor,
        ray_address=value("ray_address", ""),
        sandbox=value("sandbox", True),
        keep_failed=options.keep_failed,
        warm_workers=value("workers", _COLD) == WARM,
        labels=tuple(sorted(value("labels", {}).items())),
        may_scale_to=tuple(node_kinds.values()),
        connect_seconds=value("connect_timeout", ResolvedExecution.connect_seconds),
        reconnect_seconds=value("reconnect_timeout", ResolvedExecution.reconnect_seconds),
    )


def _option_settings(options: ExecutionOptions) -> Settings:
    given = {
        "executor": options.executor or None,
        "ray_address": options.ray_address or None,
        "sandbox": options.sandbox,
        "workers": options.workers or None,
    }
    return {
        name: option_setting(f"--{name.replace('_', '-')}", value) for name, value in given.items() if value is not None
    }
