"""A small model for CPUs and for GPUs, compiled on a cluster with blobs over S3, has the bytes of a local build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compiler.tiny_models import checkpoint, write_gguf
from tests.end_to_end.tiny_packages import PACKAGES
from tests.execution.ray.cluster_world import RayCluster
from tests.execution.ray.conftest import ClusterWorld, S3Remote
from tests.execution.ray.test_builds import digests_below

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


def test_packages_for_cpus_and_gpus_are_the_same_bytes_as_at_home(
    world: ClusterWorld, cluster: RayCluster, s3_remote: S3Remote, tmp_path: Path
) -> None:
    here = ClusterWorld(tmp_path / "here", cluster.namespace, None)
    for place in (world, here):
        place.write("BUILD.toml", f'[workspace]\nname = "tiny"\n{PACKAGES}')
        write_gguf(place.root / "tiny.gguf", checkpoint())
    report = tmp_path / "report.json"
    build = world.start("build", "--build-report", str(report), ":all", env=s3_remote.variables())
    _out, err = build.communicate(timeout=900)
    assert build.returncode == 0, err
    counts = json.loads(report.read_text())["actions"]
    assert counts["executed_local"] == 0
    assert counts["executed_ray"] > 300

    build = here.start("build", ":all")
    _out, err = build.communicate(timeout=900)
    assert build.returncode == 0, err
    assert digests_below(world.root / "mlcbuild-out") == digests_below(here.root / "mlcbuild-out")
