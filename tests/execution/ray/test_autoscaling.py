"""A cluster in which Ray's autoscaler adds nodes on demand and removes idle ones.

Its provider is Ray's for tests, which starts nodes on this machine; all else is what a cluster in a cloud has.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.world import command, is_awaited, until_there
from tests.execution.ray.cluster_world import OBJECT_STORE_BYTES, RayCluster, wait_until
from tests.execution.ray.conftest import ClusterWorld
from tests.execution.ray.namespace import Namespace
from tests.execution.ray.processes import ended

pytestmark = pytest.mark.slow

_PORT = 6395
_HEAD = "f" * 51 + "00000"  # the identifier that the provider gives a head
_KIND = '\n[execution.may_scale_to.large]\ncpus = 2\nlabels = { arch = "sm_90" }\n'
_LARGE = 'requirements = { cpus = 2, labels = { arch = "sm_90" } }'


def autoscaling() -> dict[str, Any]:
    """The configuration of a cluster: a head without CPUs, and at most one node, removed after six idle seconds."""
    provider = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
    kinds_of_commands = ("setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray", "initialization")
    large = {"CPU": 2, "object_store_memory": OBJECT_STORE_BYTES}
    return {
        **{f"{kind}_commands": [] for kind in kinds_of_commands},
        "cluster_name": "tests",
        "max_workers": 1,
        "idle_timeout_minutes": 0.1,
        "provider": {
            "type": "external",
            "module": provider,
            "gcs_address": f"127.0.0.1:{_PORT}",
            "head_node_id": _HEAD,
            "launch_multiple": True,
        },
        **{name: {} for name in ("auth", "docker", "file_mounts")},
        **{name: [] for name in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
        "file_mounts_sync_continuously": False,
        "upscaling_speed": 1.0,
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "large": {"resources": large, "labels": {"arch": "sm_90"}, "node_config": {}, "max_workers": 1},
        },
    }


@pytest.fixture
def growing(namespace: Namespace, tmp_path: Path) -> Iterator[RayCluster]:
    configuration = tmp_path / "autoscaling.json"
    configuration.write_text(json.dumps(autoscaling()))
    made = RayCluster(
        tmp_path / "cluster",
        namespace,
        port=_PORT,
        head_arguments=[f"--autoscaling-config={configuration}"],
        AUTOSCALER_UPDATE_INTERVAL_S="1",
        RAY_FAKE_CLUSTER="1",
        RAY_enable_autoscaler_v2="1",  # the first one knows no labels
        RAY_CLOUD_INSTANCE_ID=_HEAD,
        RAY_OVERRIDE_NODE_ID_FOR_TESTING=_HEAD,
    )
    try:
        yield made
    finally:
        made.close()


def status(cluster: RayCluster) -> str:
    done = subprocess.run(
        cluster.namespace.inside(
            [sys.executable, "-m", "ray.scripts.scripts", "status", f"--address={cluster.address}"]
        ),
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def nodes_of(cluster: RayCluster) -> int:
    """The autoscaler's nodes are its children, and so descendants of the head."""
    return len(cluster.head.processes("raylet/raylet"))


def test_nodes_come_for_what_waits_and_go_when_nothing_does(growing: RayCluster, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    world = ClusterWorld(tmp_path, growing.namespace, growing)
    world.commands(
        *(command(f"t{number}", f"{until_there(marker)}; echo {number} > $1", more=_LARGE) for number in range(2)),
        command("never", "echo never > $1", more="requirements = { cpus = 3 }"),
    )
    with (world.root / "BUILD.toml").open("a") as stream:
        stream.write(_KIND)
    # What no kind of node can ever run is told while there is none yet.
    done = world.process("build", ":never")
    assert done.code == 36
    assert "a node of the kind 1 that may come: needs 3 cpus (it has 2)" in done.err
    assert nodes_of(growing) == 1

    build = world.start("build", ":t0", ":t1")
    wait_until(lambda: is_awaited(marker))
    assert nodes_of(growing) == 2
    wait_until(lambda: "{'CPU': 2.0}: 1+ pending tasks" in status(growing), 30.0)
    assert build.poll() is None
    marker.write_text("")
    code, said = ended(build)
    assert code == 0, said
    assert "2 ran (2 ray)" in said
    wait_until(lambda: nodes_of(growing) == 1, 60.0)
