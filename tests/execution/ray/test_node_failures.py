"""What happens to a build when parts of its cluster do not do what they should. Each action runs to its end, once more
where it has to, and the build says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.world import command, long_sleep, sleeping
from tests.execution.ray.cluster_world import RayCluster, wait_until
from tests.execution.ray.conftest import ClusterWorld, HttpRemote
from tests.execution.ray.processes import ended, is_gone, kill, node_of, wait_for, worker_of

pytestmark = pytest.mark.slow


def one_action(world: ClusterWorld, sleep: str, more: str = "") -> None:
    world.commands(command("slow", f"{sleep}; echo made > $1", more=more))


def made(world: ClusterWorld) -> str:
    return world.output("slow/out").read_text()


def test_an_action_whose_worker_is_killed_runs_again(world: ClusterWorld, cluster: RayCluster) -> None:
    sleep = long_sleep(4)
    one_action(world, sleep)
    build = world.start("build", ":all")
    first = wait_for(sleep, build)
    kill(worker_of(cluster, first))
    wait_until(lambda: is_gone(first), 10.0)
    code, said = ended(build)
    assert code == 0, said
    assert "//:slow Command runs again" in said
    assert "its worker process died" in said
    assert made(world) == "made\n"


@pytest.mark.exhaustive
def test_an_action_whose_node_loses_its_raylet_ends_in_one_way_or_the_other(
    world: ClusterWorld, cluster: RayCluster
) -> None:
    sleep = long_sleep(20)
    one_action(world, sleep)
    build = world.start("build", ":all")
    node = node_of(cluster, wait_for(sleep, build))
    assert node.kill("raylet/raylet") == 1
    code, said = ended(build)
    assert code == 0, said
    assert made(world) == "made\n"
    node.kill()


def test_an_action_whose_node_goes_away_runs_on_another(world: ClusterWorld, cluster: RayCluster) -> None:
    sleep = long_sleep(4)
    one_action(world, sleep)
    build = world.start("build", ":all")
    first = wait_for(sleep, build)
    node = node_of(cluster, first)
    node.kill()
    wait_until(lambda: is_gone(first), 10.0)
    second = wait_for(sleep, build)
    assert node_of(cluster, second) is not node
    code, said = ended(build)
    assert code == 0, said
    assert "//:slow Command runs again" in said
    assert made(world) == "made\n"


@pytest.mark.exhaustive
def test_a_node_that_comes_takes_what_waits_for_it(world: ClusterWorld, cluster: RayCluster) -> None:
    sleep = long_sleep(1)
    more = 'requirements = { cpus = 3, labels = { arch = "sm_100" } }'
    one_action(world, sleep, more)
    done = world.process("build", ":all")
    assert done.code == 36
    assert "no node of the cluster has what the action needs" in done.err
    assert "the label arch=sm_100" in done.err

    with (world.root / "BUILD.toml").open("a") as stream:
        stream.write('[execution.may_scale_to.blackwell]\ncpus = 4\nlabels = { arch = "sm_100" }\n')
    build = world.start("build", ":all")
    wait_until(lambda: worker_count(cluster) >= 3, 60.0)
    assert build.poll() is None
    node = cluster.add("blackwell", cpus=4, labels={"arch": "sm_100"})
    try:
        assert node_of(cluster, wait_for(sleep, build)) is node
        code, said = ended(build)
        assert code == 0, said
    finally:
        node.kill()
        del cluster.nodes["blackwell"]


def worker_count(cluster: RayCluster) -> int:
    return sum(len(node.processes("ray::")) for node in cluster.nodes.values())


@pytest.mark.exhaustive
def test_a_node_that_is_drained_loses_its_action_to_another(world: ClusterWorld, cluster: RayCluster) -> None:
    sleep = long_sleep(6)
    one_action(world, sleep)
    build = world.start("build", ":all")
    node = node_of(cluster, wait_for(sleep, build))
    drain(cluster, identifier_of(cluster, node.mark))
    wait_until(lambda: not node.is_running() or build.poll() is not None, 60.0)
    node.kill()
    code, said = ended(build)
    assert code == 0, said
    assert made(world) == "made\n"


def identifier_of(cluster: RayCluster, mark: str) -> str:
    """Ray's identifier of a node, from the command line of its raylet."""
    node = next(found for found in cluster.nodes.values() if found.mark == mark)
    raylet = node.processes("raylet/raylet")[0]
    arguments = Path(f"/proc/{raylet}/cmdline").read_bytes().decode().split("\0")
    return next(value.partition("=")[2] for value in arguments if value.startswith("--node_id="))


def drain(cluster: RayCluster, identifier: str) -> None:
    arguments = [
        "drain-node",
        f"--address={cluster.address}",
        f"--node-id={identifier}",
        "--reason=DRAIN_NODE_REASON_PREEMPTION",
        "--reason-message=test",
        "--deadline-remaining-seconds=1",
    ]
    done = subprocess.run(
        cluster.namespace.inside([sys.executable, "-m", "ray.scripts.scripts", *arguments]),
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_node_that_breaks_fails_no_build_and_is_named_and_avoided(world: ClusterWorld, cluster: RayCluster) -> None:
    """The node with most of the cpus loses its store."""
    sleep = long_sleep(4)
    node = cluster.nodes["plain"]
    kept = node.store.with_name("kept")
    world.commands(
        command("first", f"{sleep}; echo made > $1"),
        *(command(f"c{number}", f"sleep 0.2; echo {number} > $1", inputs=[":first"]) for number in range(12)),
    )
    build = world.start("build", ":all", "--keep-going")
    wait_for(sleep, build)
    node.store.rename(kept)
    node.store.write_text("no folder")
    try:
        code, said = ended(build)
    finally:
        node.store.unlink()
        kept.rename(node.store)
    assert code == 0, said
    (told,) = [line for line in said.splitlines() if "is not used any more" in line]
    assert "3 actions in a row could not run there" in told
    assert str(node.store) in told
    again = [line for line in said.splitlines() if "runs again" in line]
    assert 3 <= len(again) < 13, said  # The build gives eight actions at a time to four cpus.
    assert all("node " in line for line in again), said


@pytest.mark.parametrize("names", [["plain"], ["hopper", "ampere", "plain"]])
def test_a_node_that_is_broken_from_the_start_is_named_with_its_error(
    world: ClusterWorld, cluster: RayCluster, names: list[str]
) -> None:
    """If all are, the build ends."""
    nodes = [cluster.nodes[name] for name in names]
    for node in nodes:
        node.store.mkdir(parents=True, exist_ok=True)
        node.store.rename(node.store.with_name(f"kept-{node.name}"))
        node.store.write_text("no folder")
    try:
        world.commands(command("c", "echo 1 > $1"))
        done = world.process("build", ":all")
    finally:
        for node in nodes:
            node.store.unlink()
            node.store.with_name(f"kept-{node.name}").rename(node.store)
    assert done.code == (36 if len(names) == 3 else 0), done.err
    assert str(nodes[0].store) in done.err
    assert "differ" not in done.err


@pytest.mark.exhaustive
def test_a_remote_that_goes_away_fails_no_build(world: ClusterWorld, http_remote: HttpRemote) -> None:
    sleep = long_sleep(3)
    world.write("large.bin", bytes(range(256)) * 4000)
    world.commands(
        command("first", "cat $2 $2 > $1", inputs=["large.bin"]),
        command("slow", f"{sleep}; cat $2 $2 > $1", inputs=[":first"]),
    )
    build = world.start("build", "--remote", http_remote.address, "--remote-upload=results", ":all")
    wait_for(sleep, build)
    http_remote.process.kill()
    http_remote.process.wait()
    code, said = ended(build)
    assert code == 0, said
    assert made_bytes(world) == 4 * 256 * 4000


def made_bytes(world: ClusterWorld) -> int:
    return world.output("slow/out").stat().st_size


def test_ctrl_c_leaves_nothing_running(world: ClusterWorld) -> None:
    sleep = long_sleep(600)
    one_action(world, sleep)
    build = world.start("build", ":all")
    wait_for(sleep, build)
    os.kill(build.pid, signal.SIGINT)
    code, said = ended(build)
    assert code == 8, said
    wait_until(lambda: not sleeping(sleep), 15.0)
    wait_until(lambda: not bridges_of(build.pid), 15.0)


def test_a_build_that_is_killed_leaves_nothing_running_and_the_next_finds_what_was_finished(
    world: ClusterWorld,
) -> None:
    sleep = long_sleep(600)
    world.commands(
        command("first", "echo first > $1"),
        command("slow", f"test -e $2.go || {sleep}; cat $2 > $1", inputs=[":first"]),
    )
    build = world.start("build", ":all")
    wait_for(sleep, build)
    build.kill()
    build.communicate()
    wait_until(lambda: not sleeping(sleep), 30.0)
    done = world.build("--executor=ray", ":first")
    assert done.code == 0, done.err
    assert done.actions in ({"disk_hits": 1}, {"up_to_date": 1})


def bridges_of(pid: int) -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and parent_of(entry) == pid]


def parent_of(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
