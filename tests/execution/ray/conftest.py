"""One cluster for all tests of a process: a head and three nodes, in a network of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cache.digest import DigestFunction
from tests.end_to_end.world import PROJECT, World
from tests.execution.ray.cluster_world import RayCluster, imports
from tests.execution.ray.namespace import Namespace, NoNamespaceError
from tests.remote.seaweed import ACCESS_KEY, SECRET_KEY

_SERVER = """\
import sys
sys.path.insert(0, sys.argv[1])
from tests.remote.http_server import running
with running() as cache:
    print(cache.address, flush=True)
    sys.stdin.read()
    print(len([asked for asked in cache.log if asked.method == "PUT"]), flush=True)
"""
_S3_SERVER = """\
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.remote.seaweed import running
with running(Path(sys.argv[2])) as server:
    print(json.dumps([server.endpoint, server.bucket, server.process]), flush=True)
    for prefix in sys.stdin:
        pages = server.client().get_paginator("list_objects_v2").paginate(Bucket=server.bucket, Prefix=prefix.strip())
        print(json.dumps([each["Key"] for page in pages for each in page.get("Contents", ())]), flush=True)
"""
# Nodes find the credentials in their own environment, because no secret is sent to them.
S3_CREDENTIALS: Any = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_EC2_METADATA_DISABLED": "true",
}


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
    made = RayCluster(tmp_path_factory.mktemp("cluster"), namespace, **S3_CREDENTIALS)
    try:
        made.add("hopper", gpus=2, labels={"arch": "sm_90"})
        made.add("ampere", gpus=1, labels={"arch": "sm_80"})
        made.add("plain", cpus=2)
        yield made
    finally:
        made.close()


@pytest.fixture
def cluster(shared_cluster: RayCluster) -> RayCluster:
    """The cluster, with all nodes: those that a test before this one killed are started again."""
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


@contextmanager
def serving(namespace: Namespace, program: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in the cluster's network and its first line of output. It runs until its standard input is closed."""
    process = subprocess.Popen(
        namespace.inside([sys.executable, "-c", program, str(PROJECT), *arguments]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.stdin.close()


@dataclass(frozen=True, kw_only=True)
class HttpRemote:
    """A cache server in the cluster's network, in a separate process."""

    address: str
    process: subprocess.Popen[str]

    def end(self) -> int:
        """End it. Returns how many blobs and results it received."""
        out, _ = self.process.communicate("")
        return int(out)


@pytest.fixture
def http_remote(namespace: Namespace) -> Iterator[HttpRemote]:
    with serving(namespace, _SERVER) as (process, told):
        yield HttpRemote(address=told, process=process)


@dataclass(frozen=True, kw_only=True)
class S3Remote:
    """SeaweedFS in the cluster's network."""

    endpoint: str
    bucket: str
    server: int  # its process
    process: subprocess.Popen[str]  # of who started it and asks it

    @property
    def prefix(self) -> str:
        return "on/a/cluster"

    def variables(self) -> dict[str, str]:
        """The variables of a build."""
        return {
            "MLCBUILD_REMOTE": f"s3://{self.bucket}/{self.prefix}",
            "MLCBUILD_REMOTE_ENDPOINT": self.endpoint,
            "MLCBUILD_REMOTE_ROLE": "read-write",
            **S3_CREDENTIALS,
        }

    def holds(self, content: bytes) -> bool:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(f"{self.prefix}/", file=self.process.stdin, flush=True)
        keys: list[str] = json.loads(self.process.stdout.readline())
        return any(DigestFunction.BLAKE3.of_bytes(content).hash in key for key in keys)

    def kill(self) -> None:
        os.kill(self.server, signal.SIGKILL)


@pytest.fixture(scope="module")
def s3_remote(namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Remote]:
    """One server for the tests of a file. The last of them may kill it."""
    folder = tmp_path_factory.mktemp("seaweed")
    with serving(namespace, _S3_SERVER, str(folder)) as (process, told):
        endpoint, bucket, server = json.loads(told)
        yield S3Remote(endpoint=endpoint, bucket=bucket, server=server, process=process)
