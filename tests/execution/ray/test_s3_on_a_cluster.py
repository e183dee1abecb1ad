"""Blobs move over S3 between the nodes of a cluster, and the S3 server dies in the middle of a build."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.cache.digest import DigestFunction
from tests.end_to_end.world import blob_of, command, is_awaited, until_there
from tests.execution.ray.cluster_world import Node, RayCluster, wait_until
from tests.execution.ray.conftest import ClusterWorld, S3Remote
from tests.execution.ray.processes import ended
from tests.execution.ray.test_builds import digests_below

pytestmark = pytest.mark.slow

LARGE = bytes(range(256)) * 80_000  # 20 MB: no blob that rides along, and several parts
ON_HOPPER = 'requirements = { labels = { arch = "sm_90" } }'
ON_AMPERE = 'requirements = { labels = { arch = "sm_80" } }'


def hand_over(world: ClusterWorld, salt: str, gate: str, *more: str, labels: bool = True) -> bytes:
    """`grown` on one node, and `again`, which reads it, on another, after `gate`. Answers the bytes of `grown`, which
    no build before has left anywhere.
    """
    world.write("large.bin", LARGE)
    world.write("salt", salt)
    hopper, ampere = (ON_HOPPER, ON_AMPERE) if labels else ("", "")
    world.commands(
        command("grown", "cat $2 $3 > $1", inputs=["large.bin", "salt"], outputs=["grown"], more=hopper),
        command("gate", f"{gate}; wc -c < $2 > $1", inputs=[":grown"], outputs=["gate"], more=hopper),
        command("again", "cat $2 $3 > $1", inputs=[":grown", ":gate"], more=ampere),
        *more,
    )
    return LARGE + salt.encode()


def again(grown: bytes) -> bytes:
    return f"{len(grown)}\n".encode() + grown


def has(node: Node, content: bytes, function: DigestFunction = DigestFunction.BLAKE3) -> bool:
    return bool(list(node.store.rglob(function.of_bytes(content).hash)))


def test_blobs_go_from_node_to_node_over_s3_and_are_those_of_a_local_build(
    world: ClusterWorld, cluster: RayCluster, s3_remote: S3Remote, tmp_path: Path
) -> None:
    world.environment |= s3_remote.variables()
    grown = hand_over(world, str(tmp_path), ":")
    done = world.process("build", ":again")
    assert done.code == 0, done.err
    assert "note:" not in done.err
    assert "3 ran (3 ray)" in done.err
    assert world.output("again/out").read_bytes() == again(grown)
    # What one node made for another never came home, so nobody but the bucket can have brought it.
    assert has(cluster.nodes["hopper"], grown)
    assert has(cluster.nodes["ampere"], grown)
    assert not blob_of(world, grown).exists()
    assert s3_remote.holds(grown)

    here = ClusterWorld(tmp_path / "here", cluster.namespace, None)
    hand_over(here, str(tmp_path), ":", labels=False)
    assert here.process("build", ":again").code == 0
    assert digests_below(here.root / "mlcbuild-out") == digests_below(world.root / "mlcbuild-out")


def test_a_bucket_that_goes_away_fails_no_action_but_those_that_fail(
    world: ClusterWorld, cluster: RayCluster, s3_remote: S3Remote, tmp_path: Path
) -> None:
    """What was only in the bucket is made again, and moved through Ray."""
    marker = tmp_path / "marker"
    bad = command("bad", f"{until_there(marker)}; exit 3", more="requirements = { cpus = 2 }")
    world.environment |= s3_remote.variables()
    grown = hand_over(world, str(tmp_path), until_there(marker), bad)
    build = world.start("build", "--keep-going", "--verbose", ":again", ":bad")
    wait_until(lambda: build.poll() is not None or (is_awaited(marker) and s3_remote.holds(grown)))
    assert not blob_of(world, grown).exists()
    s3_remote.kill()
    marker.write_text("")
    code, said = ended(build)
    assert code == 1, said
    assert "//:bad Command failed" in said
    assert "ended with exit code 3" in said
    assert "1 failed" in said, said
    assert said.count("//:grown Command ·") == 2, said
    assert world.output("again/out").read_bytes() == again(grown)
