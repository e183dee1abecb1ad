"""`mlcbuild doctor ray` on real clusters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.world import command
from tests.execution.ray.cluster_world import RayCluster, wait_until
from tests.execution.ray.conftest import ClusterWorld
from tests.execution.ray.namespace import Namespace

pytestmark = pytest.mark.slow

Checks = list[dict[str, Any]]


def doctor(world: ClusterWorld, *arguments: str, **environment: str) -> tuple[int, Checks]:
    done = world.process("doctor", "ray", "--output=json", *arguments, **environment)
    assert done.out, done.err
    return done.code, json.loads(done.out)["checks"]


def named(checks: Checks, name: str) -> dict[str, Any]:
    (found,) = (check for check in checks if check["name"] == name)
    return found


def test_a_whole_cluster_is_reached_looked_at_and_tried(world: ClusterWorld, cluster: RayCluster) -> None:
    # For ten seconds Ray counts a node as alive that a test before this one has killed.
    wait_until(lambda: named(doctor(world)[1], "nodes")["figures"].get("count") == 1 + len(cluster.nodes))
    code, checks = doctor(world)
    assert code == 0
    # A busy machine answers slowly, which the doctor tells: no fault of the cluster.
    told = [check for check in checks if check["verdict"] != "ok"]
    assert [(check["name"], check["verdict"]) for check in told] in ([], [("tasks", "warning")]), told
    assert checks[0]["subject"] == cluster.address
    assert named(checks, "strangers")["measured"] == "a connection with another token is rejected"
    figures = named(checks, "nodes")["figures"]
    assert (figures["count"], figures["used"], figures["cpus"], figures["gpus"]) == (4, 3, 4, 3)
    rows = [check["figures"] for check in checks if check["name"] == "node"]
    offers = {(row["cpus"], row["gpus"], row["labels"], row["shares_store"]) for row in rows}
    assert offers == {(0, 0, "", False), (1, 2, "arch=sm_90", False), (1, 1, "arch=sm_80", False), (2, 0, "", False)}
    assert 0 < named(checks, "tasks")["figures"]["median_seconds"] < 5


def test_a_cluster_with_another_token_is_told_at_once(world: ClusterWorld, cluster: RayCluster) -> None:
    world.commands(command("small", "echo small > $1"))
    done = world.process("build", ":all", RAY_AUTH_TOKEN="another" * 6)
    assert done.code == 36
    assert "Authentication token is missing or incorrect" in done.err
    code, checks = doctor(world, RAY_AUTH_TOKEN="another" * 6)
    assert code == 2
    found = named(checks, "cluster")
    assert found["verdict"] == "error"
    assert "Authentication token is missing or incorrect" in found["measured"]
    assert "both have the same token" in found["advice"][0]
    assert found["seconds"] < 15
    assert named(checks, "nodes")["verdict"] == "skipped"


@pytest.mark.exhaustive
def test_a_cluster_that_takes_any_token_is_warned_of(namespace: Namespace, tmp_path: Path) -> None:
    open_cluster = RayCluster(tmp_path / "cluster", namespace, port=6397, RAY_AUTH_MODE="disabled")
    try:
        world = ClusterWorld(tmp_path, namespace, open_cluster)
        code, checks = doctor(world, RAY_AUTH_MODE="token")
        assert named(checks, "strangers")["verdict"] == "warning", checks
        assert "can run anything" in named(checks, "strangers")["measured"]
        # And its head has no cpus.
        assert (code, named(checks, "nodes")["verdict"]) == (2, "error")
    finally:
        open_cluster.close()


@pytest.mark.exhaustive
def test_a_cluster_of_this_machine_is_started_and_ended(namespace: Namespace, tmp_path: Path) -> None:
    world = ClusterWorld(tmp_path, namespace, None)
    code, checks = doctor(world, "--executor=ray")
    assert code == 0, checks
    assert checks[0]["subject"] == "a cluster of this machine"
    assert named(checks, "cluster")["measured"].startswith("started in ")
    assert named(checks, "nodes")["figures"]["used"] == 1
    assert named(checks, "tasks")["verdict"] == "ok"


@pytest.mark.exhaustive
def test_what_listens_and_never_answers_is_given_up(namespace: Namespace, tmp_path: Path) -> None:
    world = ClusterWorld(tmp_path, namespace, None)
    world.write("BUILD.toml", '[workspace]\nname = "example"\n\n[execution]\nconnect_timeout = "2s"\n')
    script = (
        "import socket, subprocess, sys\n"
        "with socket.create_server(('127.0.0.1', 6396)):\n"
        "    sys.exit(subprocess.run(sys.argv[1:]).returncode)\n"
    )
    command = world.command("doctor", "ray", "--output=json", "--ray-address=127.0.0.1:6396")
    at = command.index("--") + 1
    done = subprocess.run(
        [*command[:at], sys.executable, "-c", script, *command[at:]],
        cwd=world.root,
        env={**world.environment, "RAY_AUTH_TOKEN": "any"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    found = named(json.loads(done.stdout)["checks"], "cluster")
    assert done.returncode == 36
    assert "cannot be reached: it does not answer" in found["measured"]
    assert found["seconds"] < 30
