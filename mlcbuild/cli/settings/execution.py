"""What is said of where actions run, by whom, and what holds.

Each setting for itself, the first of these that says it: an option of the command, a variable, the user's
`settings.toml`, `[execution]` of the root `BUILD.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlcbuild.cli.settings.source import Said, said_in
from mlcbuild.cli.settings.user_file import UserSettings
from mlcbuild.suggestions import known_values
from mlcbuild.workspace.execution import EXECUTORS, WORKERS
from mlcbuild.workspace.settings import WorkspaceSettings

if TYPE_CHECKING:
    from mlcbuild.cache.remote.configuration import RemoteConfiguration
    from mlcbuild.execution.ray.settings import RaySettings

LOCAL, RAY, AUTO = EXECUTORS
_COLD, WARM = WORKERS
EXECUTOR_VARIABLE = "MLCBUILD_EXECUTOR"
ADDRESS_VARIABLE = "MLCBUILD_RAY_ADDRESS"
SANDBOX_VARIABLE = "MLCBUILD_SANDBOX"
WORKERS_VARIABLE = "MLCBUILD_WORKERS"
_SWITCH = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}


@dataclass(frozen=True, kw_only=True)
class ExecutionFlags:
    """What the command line says of it; "" and None where it says nothing."""

    executor: str = ""
    ray_address: str = ""
    sandbox: bool | None = None
    keep_failed: bool = False  # the directories of actions
    workers: str = ""


@dataclass(frozen=True, kw_only=True)
class ResolvedExecution:
    """What holds. `executor` is `local` or `ray`, or `auto` where there is a cluster to choose."""

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
        from mlcbuild.execution.machine import Machine
        from mlcbuild.execution.ray.settings import RaySettings

        return RaySettings(
            address=self.ray_address,
            jobs=jobs,
            labels=self.labels,
            may_scale_to=tuple(
                Machine(
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
    flags: ExecutionFlags, environment: Mapping[str, str], user: UserSettings, settings: WorkspaceSettings
) -> ResolvedExecution:
    """Raises UsageError for options and variables, WorkspaceError for files."""
    said: dict[str, Said] = {}
    kinds: dict[str, Mapping[str, Any]] = {}
    for table, folder in ((settings.execution, settings.root), (user.execution, user.folder)):  # who counts more, later
        said.update(said_in(table, folder))
        if table is not None:
            kinds.update(table.node_kinds)
    for name, variable in (
        ("executor", EXECUTOR_VARIABLE),
        ("ray_address", ADDRESS_VARIABLE),
        ("sandbox", SANDBOX_VARIABLE),
        ("workers", WORKERS_VARIABLE),
    ):
        if environment.get(variable):
            said[name] = Said(value=environment[variable], place=variable)
    for name, option, value in (
        ("executor", "--executor", flags.executor),
        ("ray_address", "--ray-address", flags.ray_address),
        ("sandbox", "--sandbox", flags.sandbox),
        ("workers", "--workers", flags.workers),
    ):
        if value not in ("", None):
            said[name] = Said(value=value, place=option)
    executor, address = said.get("executor"), said.get("ray_address")
    wanted = executor.value if executor else LOCAL
    if executor is not None and wanted not in EXECUTORS:
        raise executor.mistake(f'unknown executor "{wanted}": {known_values(wanted, EXECUTORS)}')
    if address is not None:
        _check_address(address)
    if wanted == AUTO and address is None:
        wanted = LOCAL
    workers = said.get("workers")
    if workers is not None and workers.value not in WORKERS:
        raise workers.mistake(f'unknown workers "{workers.value}": {known_values(workers.value, WORKERS)}')
    labels = said["labels"].value if "labels" in said else {}
    return ResolvedExecution(
        executor=wanted,
        ray_address=address.value if address else "",
        sandbox=_switch(said["sandbox"]) if "sandbox" in said else True,
        keep_failed=flags.keep_failed,
        warm_workers=workers is not None and workers.value == WARM,
        labels=tuple(sorted(labels.items())),
        may_scale_to=tuple(kinds.values()),
        **{
            field: said[name].value
            for name, field in (("connect_timeout", "connect_seconds"), ("reconnect_timeout", "reconnect_seconds"))
            if name in said
        },
    )


def _switch(said: Said) -> bool:
    if isinstance(said.value, bool):
        return said.value
    if said.value.lower() not in _SWITCH:
        raise said.mistake(f'"{said.value}" is neither 1 nor 0')
    return _SWITCH[said.value.lower()]


def _check_address(said: Said) -> None:
    from mlcbuild.execution.ray.settings import check_address

    try:
        check_address(said.value)
    except ValueError as error:
        raise said.mistake(str(error)) from None
