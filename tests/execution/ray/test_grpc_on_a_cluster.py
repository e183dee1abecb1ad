"""Blobs move between the nodes of a cluster through a third-party server of the Remote Execution API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mlcbuild.cache.digest import DigestFunction
from tests.end_to_end.world import HEAD, command
from tests.execution.ray.cluster_world import RayCluster
from tests.execution.ray.conftest import ClusterWorld, serving
from tests.execution.ray.namespace import Namespace
from tests.execution.ray.test_s3_on_a_cluster import ON_AMPERE, ON_HOPPER, has
from tests.remote import buildgrid

pytestmark = pytest.mark.slow

_SERVER = """\
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.remote.buildgrid import running
with running(Path(sys.argv[2])) as address:
    print(address, flush=True)
    sys.stdin.read()
"""
_LARGE = bytes(range(256)) * 40_000  # 10 MB: no blob that rides along, and too large for one message


@pytest.fixture(scope="module")
def address(namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    buildgrid.environment()  # Within the cluster's network nothing can be installed.
    with serving(namespace, _SERVER, str(tmp_path_factory.mktemp("buildgrid"))) as (_, told):
        yield told


def test_blobs_go_from_node_to_node_over_grpc(world: ClusterWorld, cluster: RayCluster, address: str) -> None:
    salt = world.root.name.encode() + str(world.root).encode()  # No build before has left what this one makes.
    world.write("large.bin", _LARGE)
    world.write("salt", salt)
    world.commands(
        command("grown", "cat $2 $3 > $1", inputs=["large.bin", "salt"], outputs=["grown"], more=ON_HOPPER),
        command("again", "cat $2 $2 > $1", inputs=[":grown"], more=ON_AMPERE),
        head=HEAD.replace("\n\n", '\ndigest = "sha256"\n\n', 1),
    )
    grown = _LARGE + salt
    remote = ("--remote", f"grpc://{address}/main/a", "--remote-upload=results")
    done = world.process("build", ":again", *remote)
    assert done.code == 0, done.err
    assert "note:" not in done.err
    assert "2 ran (2 ray)" in done.err
    assert world.output("again/out").read_bytes() == grown * 2
    # What one node made for another never came home, so nobody but the server can have brought it.
    assert has(cluster.nodes["hopper"], grown, DigestFunction.SHA256)
    assert has(cluster.nodes["ampere"], grown, DigestFunction.SHA256)
    assert not list(world.cache.rglob(DigestFunction.SHA256.of_bytes(grown).hash))

    # Another machine, which has nothing of it but the address, runs nothing.
    world.environment["XDG_CACHE_HOME"] = str(world.root.parent / "another-cache")
    done = world.process("clean")
    assert done.code == 0, done.err
    done = world.process("build", ":again", *remote)
    assert done.code == 0, done.err
    assert "2 actions: 2 from remote" in done.err
