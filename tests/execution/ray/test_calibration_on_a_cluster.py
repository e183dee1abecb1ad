"""Calibration on a cluster, each shard of the sample on some node: its bytes, and what reruns."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.calibrated import STATISTICS, statistics_in, write_model, write_targets
from tests.end_to_end.kernel_cache import KernelCache
from tests.end_to_end.world import World
from tests.execution.ray.conftest import ClusterWorld

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

_WEIGHTS = (
    '\n[[quantized_weights]]\nname = "weights"\nmodel = ":tiny"\nquantization = "q4f16_1"\ncalibration = ":text"\n'
)
_TARGETS = (":statistics", ":weights")


def _made(world: World) -> tuple[dict[str, bytes], bytes]:
    return statistics_in(world.output("statistics")), (world.output("weights") / "params_shard_0.bin").read_bytes()


def _built(world: ClusterWorld, report: Path) -> dict[str, Any]:
    """How many actions of a build ran where."""
    build = world.start("build", "--build-report", str(report), *_TARGETS)
    _out, err = build.communicate(timeout=600)
    assert build.returncode == 0, err
    counts: dict[str, Any] = json.loads(report.read_text())["actions"]
    return counts


def test_calibration_on_a_cluster_makes_the_bytes_of_one_worker(
    world: ClusterWorld, tmp_path: Path, kernel_cache: KernelCache
) -> None:
    alone = World(tmp_path / "alone")
    for place in (world, alone):
        write_model(place)
        write_targets(place, STATISTICS, _WEIGHTS)
    with kernel_cache.used_by(alone.root, alone.cache):
        done = alone.build(*_TARGETS)
        assert done.code == 0, done.err
    kernel_cache.lend(world.cache)
    counts = _built(world, tmp_path / "report.json")
    assert (counts["executed_local"], counts["executed_ray"] >= 14) == (0, True)
    assert _made(world) == _made(alone)

    # A sample more: SampleTexts, the shard that it falls in, and the merge; the search and what it decides follow.
    write_targets(world, STATISTICS, samples=13)
    added = world.start("build", "--build-report", str(tmp_path / "added.json"), ":statistics")
    _out, err = added.communicate(timeout=600)
    assert added.returncode == 0, err
    assert json.loads((tmp_path / "added.json").read_text())["actions"]["executed_ray"] == 3

    # A build that is killed goes on with the shards that are left.
    write_targets(world, STATISTICS, seed=7)
    killed = world.start("build", "--verbose", ":statistics")
    assert killed.stderr is not None
    for line in killed.stderr:
        if re.match(r"\[\d+/\d+\] //:statistics Observe \d ", line):
            break
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    write_targets(world, STATISTICS, seed=7)
    resumed = world.start("build", "--build-report", str(tmp_path / "resumed.json"), ":statistics")
    _out, err = resumed.communicate(timeout=600)
    assert resumed.returncode == 0, err
    assert json.loads((tmp_path / "resumed.json").read_text())["actions"]["executed_ray"] <= 4
