"""A comparison of compilers on a cluster: nodes compile, and one that has the device measures."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from mlcbuild.cache.digest import DigestFunction
from tests.end_to_end.compilers.compiler_world import BOUND, CompilerWorld
from tests.end_to_end.compilers.every_compiler import compare_all, every_compiler_world, measured
from tests.execution.ray.cluster_world import RayCluster, imports

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]
COMPILERS = ("onnxruntime", "openvino")
ON_HOPPER = 'requirements = { labels = { arch = "sm_90" } }\n'


def on_the_cluster(world: CompilerWorld, cluster: RayCluster, *arguments: str) -> dict[str, str]:
    """A command in the cluster's network. Returns what ran: mnemonic → executor."""
    events = world.folder / "events"
    command = [*world.command(*arguments), "--events", str(events)]
    done = subprocess.run(
        cluster.namespace.inside(command),
        cwd=world.root,
        env={**world.environment, **imports(), **cluster.builder()},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in events.read_text().splitlines()]
    finished = [each for each in found if each["event"] == "action_finished" and each["executor"]]
    return {each["mnemonic"]: each["executor"] for each in finished}


def test_a_node_with_the_device_measures_what_nodes_compiled(tmp_path: Path, cluster: RayCluster) -> None:
    world = every_compiler_world(tmp_path, *COMPILERS)
    compare_all(world, "mlp", COMPILERS, rounds=1, seconds=0.02, threads=1)
    here = (world.root / "BUILD.toml").read_text()
    # The last table is the comparison's.
    world.write("BUILD.toml", here + ON_HOPPER)
    # Wheels come from outside of the cluster's network. This machine unpacks them, and nodes get the files.
    environments = world.build("//:onnxruntime", "//:openvino")
    assert environments.code == 0, environments.err

    ran = on_the_cluster(world, cluster, "build", "//:mlp-compared")
    assert set(ran.values()) == {"ray"}
    assert {"OptimizeOnnx", "MeasureModels"} <= set(ran)
    for each in measured(world, "mlp")["models"]:
        (case,) = each["cases"]
        assert case["error"] < BOUND, each
    name = DigestFunction.BLAKE3.of_bytes(world.output("mlp-compared/measured.json").read_bytes()).hash
    holding = [node for node, each in cluster.nodes.items() if list(each.store.rglob(name))]
    assert holding == ["hopper"]

    ran = on_the_cluster(world, cluster, "build", "//:mlp-compared")
    assert ran == {"MeasureModels": "ray"}, "it is measured anew, and nothing is compiled again"

    alone = world.build("//:mlp-compared")
    assert alone.code != 0
    assert "no executor can run //:mlp-compared MeasureModels" in alone.err

    world.write("BUILD.toml", here)
    ran = on_the_cluster(world, cluster, "build", "//:mlp-compared")
    assert ran == {"MeasureModels": "local"}, "without a requirement this machine measures"
