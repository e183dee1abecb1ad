"""Clusters of their own: a head that dies, a node without memory or disk, and no cluster at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.world import command, long_sleep, sleeping
from tests.execution.ray.cluster_world import RayCluster, processes_marked, wait_until
from tests.execution.ray.conftest import ClusterWorld
from tests.execution.ray.namespace import Namespace
from tests.execution.ray.processes import ended, wait_for

pytestmark = pytest.mark.slow

_MARK = "MLCBUILD_TEST_NODE"
_PORT = 6398


@pytest.fixture
def own_cluster(namespace: Namespace, tmp_path: Path) -> Iterator[RayCluster]:
    made = RayCluster(tmp_path / "cluster", namespace, port=_PORT)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.exhaustive
def test_a_head_that_dies_ends_the_build_in_time_and_the_next_finds_what_was_finished(
    own_cluster: RayCluster, tmp_path: Path
) -> None:
    own_cluster.add("one")
    world = ClusterWorld(tmp_path, own_cluster.namespace, own_cluster)
    sleep = long_sleep(600)
    world.commands(command("first", "echo 1 > $1"), command("slow", f"{sleep}; cat $2 > $1", inputs=[":first"]))
    build = world.start("build", ":all")
    wait_for(sleep, build)
    own_cluster.head.kill()
    code, said = ended(build)
    assert code == 36, said
    assert f"the Ray cluster at {own_cluster.address} cannot be reached" in said
    assert "this may be retried" in said
    for node in own_cluster.nodes.values():
        node.kill()
    wait_until(lambda: not sleeping(sleep), 30.0)
    done = world.build("--executor=local", ":first")
    assert done.code == 0, done.err
    assert done.actions in ({"disk_hits": 1}, {"up_to_date": 1})


@pytest.mark.exhaustive
def test_a_head_that_comes_back_is_found_again_and_the_build_goes_on(own_cluster: RayCluster, tmp_path: Path) -> None:
    node = own_cluster.add("one")
    world = ClusterWorld(tmp_path, own_cluster.namespace, own_cluster)
    sleep = long_sleep(3)
    world.commands(command("slow", f"{sleep}; echo made > $1"), head=_head_with("reconnect_timeout = '10m'"))
    build = world.start("build", ":all")
    wait_for(sleep, build)
    own_cluster.head.kill()
    node.kill()
    own_cluster.head.start()
    node.start()
    code, said = ended(build)
    assert code == 0, said
    assert "the connection to the Ray cluster at" in said
    assert world.output("slow/out").read_text() == "made\n"


def test_with_auto_a_build_whose_cluster_goes_away_goes_on_here(own_cluster: RayCluster, tmp_path: Path) -> None:
    own_cluster.add("one")
    world = ClusterWorld(tmp_path, own_cluster.namespace, own_cluster)
    sleep = long_sleep(3)
    world.commands(
        command("slow", f"{sleep}; echo made > $1"), head=_head_with("executor = 'auto'\nreconnect_timeout = '1s'")
    )
    del world.environment["MLCBUILD_EXECUTOR"]
    build = world.start("build", ":all")
    wait_for(sleep, build)
    own_cluster.head.kill()
    for node in own_cluster.nodes.values():
        node.kill()
    code, said = ended(build)
    assert code == 0, said
    assert world.output("slow/out").read_text() == "made\n"


def _head_with(settings: str) -> str:
    return (
        '[workspace]\nname = "example"\n\n[[tool]]\nname = "sh"\npath = "/bin/sh"\n'
        f"\n[execution]\n{settings}\n\n".replace("'", '"')
    )


@pytest.mark.exhaustive
def test_an_action_that_is_killed_for_memory_runs_again_with_more(own_cluster: RayCluster, tmp_path: Path) -> None:
    memory = {line.split(":")[0]: int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()}
    used = memory["MemTotal"] - memory["MemAvailable"]
    threshold = (used + (2 << 20)) / memory["MemTotal"]
    own_cluster.add("small", memory_bytes=1 << 30, environment={"RAY_memory_usage_threshold": f"{threshold:.3f}"})
    world = ClusterWorld(tmp_path, own_cluster.namespace, own_cluster)
    tool = f'[[tool]]\nname = "python"\npath = "{Path(sys.executable).resolve()}"\n'
    script = "import sys, time; hold = bytearray(4 << 30); time.sleep(5); open(sys.argv[1], 'w').write('made')"
    world.commands(
        tool,
        '[[command]]\nname = "slow"\ntool = ":python"\noutputs = ["out"]\n'
        f'arguments = ["-c", "{script}", "{{outputs}}"]\n',
    )
    with (world.root / "BUILD.toml").open("a") as stream:
        stream.write('[execution.may_scale_to.large]\ncpus = 1\nmemory = "64GiB"\n')
    said = tmp_path / "said"
    with said.open("w") as stream:
        command_line = world.command("build", ":all")
        build = subprocess.Popen(command_line, cwd=world.root, env=world.environment, stderr=stream)
    wait_until(lambda: "runs again" in said.read_text())
    assert "its node ran out of memory, and Ray killed its worker" in said.read_text()
    own_cluster.add("large", memory_bytes=64 << 30)
    assert build.wait(180) == 0, said.read_text()
    assert world.output("slow/out").read_text() == "made"


@pytest.mark.exhaustive
def test_a_node_with_a_full_disk_is_left_alone(own_cluster: RayCluster, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("to mount a small disk takes root")
    full = own_cluster.folder / "stores" / "full"
    full.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(full)], check=True)
    try:
        own_cluster.add("full", cpus=4, labels={"size": "small"})
        own_cluster.add("other", cpus=1)
        world = ClusterWorld(tmp_path, own_cluster.namespace, own_cluster)
        world.write("large.bin", bytes(range(256)) * 20_000)
        world.commands(
            *(
                command(f"grown-{number}", f"cat $2 > $1; echo {number} >> $1", inputs=["large.bin"])
                for number in range(3)
            )
        )
        done = world.process("build", ":all")
        assert done.code == 0, done.err
        assert "is not used any more: its disk is full" in done.err
    finally:
        own_cluster.close()
        subprocess.run(["umount", "-l", str(full)], check=True)


def test_a_cluster_that_a_build_starts_ends_with_it(namespace: Namespace, tmp_path: Path) -> None:
    world = ClusterWorld(tmp_path, namespace, None)
    world.environment |= {"MLCBUILD_EXECUTOR": "ray", _MARK: tmp_path.name}
    world.commands(command("first", "echo 1 > $1"), command("second", "cat $2 > $1", inputs=[":first"]))
    done = world.process("build", ":all")
    assert done.code == 0, done.err
    assert "2 ran (2 ray)" in done.err
    wait_until(lambda: not processes_marked(_MARK, tmp_path.name), 15.0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_a_build_that_is_stopped_takes_the_cluster_that_it_started_with_it(
    namespace: Namespace, tmp_path: Path, kind: signal.Signals
) -> None:
    world = ClusterWorld(tmp_path, namespace, None)
    world.environment |= {"MLCBUILD_EXECUTOR": "ray", _MARK: tmp_path.name}
    sleep = long_sleep(600)
    world.commands(command("slow", f"{sleep}; echo made > $1"))
    build = world.start("build", ":all")
    wait_for(sleep, build)
    os.kill(build.pid, kind)
    build.communicate()
    wait_until(lambda: not processes_marked(_MARK, tmp_path.name) and not sleeping(sleep), 30.0)


@pytest.mark.exhaustive
def test_a_cluster_that_is_not_there_is_told_and_auto_builds_here(namespace: Namespace, tmp_path: Path) -> None:
    world = ClusterWorld(tmp_path, namespace, None)
    world.commands(command("first", "echo 1 > $1"), head=_head_with("connect_timeout = '1s'"))
    done = world.process("build", "--executor=ray", "--ray-address=127.0.0.1:1", ":all")
    assert done.code == 36
    assert "the Ray cluster at 127.0.0.1:1 cannot be reached" in done.err
    done = world.process("build", "--executor=auto", "--ray-address=127.0.0.1:1", ":all")
    assert done.code == 0, done.err
