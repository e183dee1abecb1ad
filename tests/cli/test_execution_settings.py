"""Where actions run: sources of settings, and their order."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.cli.settings.execution import ExecutionOptions, ResolvedExecution, resolve_execution
from mlcbuild.errors import MlcbuildError, UsageError, WorkspaceErrors
from mlcbuild.execution.machine_resources import MachineResources
from mlcbuild.workspace.settings import load_settings

_WORKSPACE = '[workspace]\nname = "w"\n'


class World:
    """A workspace and a user's own settings, as texts."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "workspace"
        self.root.mkdir()
        self.environment = {"XDG_CONFIG_HOME": str(folder / "config")}
        self.user_file = folder / "config/mlcbuild/settings.toml"
        self.user_file.parent.mkdir(parents=True)

    def resolve(
        self, workspace: str = "", user: str = "", options: ExecutionOptions | None = None, **variables: str
    ) -> ResolvedExecution:
        (self.root / "BUILD.toml").write_text(_WORKSPACE + workspace)
        self.user_file.write_text(user)
        environment = {**self.environment, **variables}
        settings = load_settings(self.root)
        return resolve_execution(options or ExecutionOptions(), environment, settings)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_by_default_actions_run_on_this_machine(world: World) -> None:
    assert world.resolve().executor == "local"
    assert not world.resolve().uses_ray


def test_an_option_counts_more_than_a_variable_than_the_users_file_than_the_workspace(world: World) -> None:
    workspace = '[execution]\nexecutor = "ray"\nray_address = "one:1"\n'
    user = '[execution]\nray_address = "two:2"\n'
    assert world.resolve(workspace).ray_address == "one:1"
    found = world.resolve(workspace, user)
    assert (found.executor, found.ray_address) == ("ray", "two:2")
    found = world.resolve(workspace, user, MLCBUILD_RAY_ADDRESS="three:3", MLCBUILD_EXECUTOR="auto")
    assert (found.executor, found.ray_address) == ("auto", "three:3")
    options = ExecutionOptions(executor="local", ray_address="four:4")
    assert world.resolve(workspace, user, options, MLCBUILD_EXECUTOR="auto").executor == "local"


def test_auto_without_a_cluster_is_local(world: World) -> None:
    assert world.resolve('[execution]\nexecutor = "auto"\n').executor == "local"


def test_settings_of_a_cluster(world: World) -> None:
    found = world.resolve(
        '[execution]\nexecutor = "ray"\nray_address = "head:6379"\nlabels = { pool = "build" }\n'
        'connect_timeout = "10s"\nreconnect_timeout = "5m"\n'
        '[execution.may_scale_to.hopper]\ncpus = 64\nmemory = "512GiB"\ngpus = 8\nlabels = { arch = "sm_90" }\n'
        "[execution.may_scale_to.plain]\ncpus = 16\n"
    )
    settings = found.ray_settings(jobs=4, remote=None)
    assert settings.address == "head:6379"
    assert settings.labels == (("pool", "build"),)
    assert (settings.connect_seconds, settings.reconnect_seconds) == (10.0, 300.0)
    assert settings.may_scale_to == (
        MachineResources(cpus=64, memory_bytes=512 << 30, gpus=8.0, labels=(("arch", "sm_90"),)),
        MachineResources(cpus=16),
    )


@pytest.mark.parametrize("address", ["head", "ray://head:10001", "head:port", ":6379", "head:70000"])
def test_an_error_in_the_address_names_its_source(world: World, address: str) -> None:
    with pytest.raises(UsageError, match=r"--ray-address: the address of a Ray cluster is host:port"):
        world.resolve(options=ExecutionOptions(executor="ray", ray_address=address))
    with pytest.raises(MlcbuildError, match=r"BUILD\.toml:4:\d+: the address of a Ray cluster is host:port"):
        world.resolve(f'[execution]\nray_address = "{address}"\n')


def test_errors_in_the_table_are_reported_together(world: World) -> None:
    with pytest.raises(WorkspaceErrors) as caught:
        world.resolve('[execution]\nexecutor = "slurm"\nray_adress = "a:1"\n[execution.may_scale_to.big]\ncpu = 4\n')
    told = str(caught.value)
    assert "executor" in told
    assert "ray_adress" in told
    assert '"cpu"' in told
    assert "[execution.may_scale_to.big]" in told


def test_an_unknown_executor_in_a_variable_is_an_error(world: World) -> None:
    with pytest.raises(UsageError, match=r'MLCBUILD_EXECUTOR: unknown value "rey"'):
        world.resolve(MLCBUILD_EXECUTOR="rey")
