"""One cluster for all tests of a process: a head and three nodes, in a network of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.world import PROJECT, World
from tests.execution.ray.cluster_world import RayCluster, imports
from tests.execution.ray.namespace import Namespace, NoNamespaceError

_SERVER = """\
import sys
sys.path.insert(0, sys.argv[1])
from tests.remote.http_server import running
with running() as cache:
    print(cache.address, flush=True)
    sys.stdin.read()
    print(len([asked for asked in cache.log if asked.method == "PUT"]), flush=True)
"""


@pytest.fixture(scope="session")
def namespace() -> Iterator[Namespace]:
    pytest.importorskip("ray")
    try:
        made = Namespace(str(PROJECT))
    except NoNamespaceError as error:
        pytest.skip(f"this machine lets us make no network of our own: {error}")
    yield made
    made.close()


@pytest.fixture(scope="session")
def shared_cluster(namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    made = RayCluster(tmp_path_factory.mktemp("cluster"), namespace)
    try:
        made.add("hopper", gpus=2, labels={"arch": "sm_90"})
        made.add("ampere", gpus=1, labels={"arch": "sm_80"})
        made.add("plain", cpus=2)
        yield made
    finally:
        made.close()


@pytest.fixture
def cluster(shared_cluster: RayCluster) -> RayCluster:
    """The cluster, whole: what a test before this one killed is there again."""
    for node in shared_cluster.nodes.values():
        if not node.is_running():
            node.kill()
            node.start()
    return shared_cluster


class ClusterWorld(World):
    """A workspace whose commands run in the cluster's network, and build on the cluster."""

    def __init__(self, folder: Path, namespace: Namespace, cluster: RayCluster | None) -> None:
        super().__init__(folder)
        self._namespace = namespace
        self.environment |= imports()
        if cluster is not None:
            self.environment |= cluster.builder()

    def command(self, *arguments: str) -> list[str]:
        return self._namespace.inside(super().command(*arguments))


@pytest.fixture
def world(tmp_path: Path, cluster: RayCluster) -> ClusterWorld:
    return ClusterWorld(tmp_path, cluster.namespace, cluster)


@dataclass(frozen=True, kw_only=True)
class HttpRemote:
    """A cache server in the cluster's network, in a process of its own."""

    address: str
    process: subprocess.Popen[str]

    def end(self) -> int:
        """Answers how many blobs and results it was sent."""
        out, _ = self.process.communicate("")
        return int(out)


@pytest.fixture
def http_remote(namespace: Namespace) -> Iterator[HttpRemote]:
    process = subprocess.Popen(
        namespace.inside([sys.executable, "-c", _SERVER, str(PROJECT)]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield HttpRemote(address=process.stdout.readline().strip(), process=process)
        process.stdin.close()
