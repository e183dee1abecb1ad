"""A node whose link is cut: nobody is told, and nothing is refused. Two networks are joined by a veth pair for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.world import HEAD, PROJECT, command, long_sleep, sleeping
from tests.execution.ray.cluster_world import RayCluster, wait_until
from tests.execution.ray.conftest import ClusterWorld
from tests.execution.ray.namespace import Namespace, NoNamespaceError
from tests.execution.ray.processes import ended, wait_for

pytestmark = pytest.mark.slow

SETTINGS = '\n[execution]\nreconnect_timeout = "10s"\n'
_NEAR, _FAR = "10.77.0.1", "10.77.0.2"


class Link:
    """Two networks: `near` with a bridge that has the address 10.77.0.1, and `far` with 10.77.0.2."""

    def __init__(self) -> None:
        self.near = Namespace(str(PROJECT))
        self.far = Namespace(str(PROJECT))
        try:
            self._near("link", "add", "br0", "type", "bridge")
            far = str(self.far.holder)
            self._near("link", "add", "port", "type", "veth", "peer", "name", "eth0", "netns", far)
            self._near("link", "set", "port", "master", "br0", "up")
            self._near("addr", "add", f"{_NEAR}/24", "dev", "br0")
            self._near("link", "set", "br0", "up")
            self._far("addr", "add", f"{_FAR}/24", "dev", "eth0")
            self._far("link", "set", "eth0", "up")
        except BaseException:
            self.close()
            raise

    def cut(self) -> None:
        """Nothing arrives any more, in either direction, and no end is told: the bridge and the addresses stay."""
        self._near("link", "set", "port", "down")

    def close(self) -> None:
        self.near.close()
        self.far.close()

    def _near(self, *arguments: str) -> None:
        _ip(self.near, *arguments)

    def _far(self, *arguments: str) -> None:
        _ip(self.far, *arguments)


def _ip(namespace: Namespace, *arguments: str) -> None:
    done = subprocess.run(namespace.inside(["ip", *arguments]), capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoNamespaceError(f"ip {' '.join(arguments)}: {done.stderr}")


@pytest.fixture
def link() -> Iterator[Link]:
    pytest.importorskip("ray")
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("to join networks takes root, and the program ip")
    try:
        made = Link()
    except NoNamespaceError as error:
        pytest.skip(f"this machine lets us join no networks: {error}")
    yield made
    made.close()


def far_machine(link: Link, cluster: RayCluster) -> Callable[[Sequence[str]], list[str]]:
    """Ray keeps the address of a machine's node in its folder, so this machine has a folder of its own."""

    def inside(command_line: Sequence[str]) -> list[str]:
        mount = f'mkdir -p {cluster.temporary} && mount -t tmpfs tmpfs {cluster.temporary} && exec "$@"'
        return link.far.inside(["unshare", "--mount", "sh", "-c", mount, "sh", *command_line])

    return inside


@pytest.fixture
def far_cluster(link: Link, tmp_path: Path) -> Iterator[RayCluster]:
    """A head without cpus in the near network, and a node in the far one. Ray declares no node dead during a test."""
    patience: Any = {"RAY_health_check_failure_threshold": "100", "RAY_health_check_timeout_ms": "60000"}
    cluster = RayCluster(tmp_path / "cluster", link.near, port=6395, host=_NEAR, **patience)

    try:
        cluster.add("far", host=_FAR, inside=far_machine(link, cluster))
        yield cluster
    finally:
        cluster.close()


def test_the_actions_of_a_node_that_falls_silent_run_elsewhere_in_seconds(
    link: Link, far_cluster: RayCluster, tmp_path: Path
) -> None:
    """The near node can run two actions and the far one a third, so it runs one when the link is cut. The fourth
    waits, at either.
    """
    far_cluster.add("near", cpus=2)
    world = ClusterWorld(tmp_path, far_cluster.namespace, far_cluster)
    sleep = long_sleep(20)
    world.commands(*(command(f"slow-{number}", f"{sleep}; echo {number} > $1") for number in range(4)))
    build = world.start("build", ":all", "--jobs", "4")
    wait_for(sleep, build)
    wait_until(lambda: len(sleeping(sleep)) == 3)
    link.cut()
    began = time.monotonic()
    code, said = ended(build)
    seconds = time.monotonic() - began
    assert code == 0, said
    assert "does not answer: its actions run elsewhere" in said
    assert "runs again" in said
    assert "its node does not answer" in said
    assert seconds < 60, said
    for number in range(4):
        assert world.output(f"slow-{number}/out").read_text() == f"{number}\n"


def test_a_head_that_falls_silent_ends_the_build_in_time(link: Link, tmp_path: Path) -> None:
    """The action runs on the near machine, where the build is. Nothing there is told of the head."""
    cluster = RayCluster(
        tmp_path / "cluster",
        link.near,
        port=6394,
        host=_FAR,
        inside=lambda cluster: far_machine(link, cluster),
        RAY_health_check_failure_threshold="100",
    )
    try:
        cluster.add("near", cpus=1, host=_NEAR)
        world = ClusterWorld(tmp_path, link.near, cluster)
        sleep = long_sleep(300)
        world.commands(command("slow", f"{sleep}; echo 1 > $1"), head=HEAD + SETTINGS)
        build = world.start("build", ":all")
        wait_for(sleep, build)
        link.cut()
        began = time.monotonic()
        code, said = ended(build)
        seconds = time.monotonic() - began
    finally:
        cluster.close()
    assert code == 36, said
    assert "cannot be reached" in said
    assert seconds < 90, said
