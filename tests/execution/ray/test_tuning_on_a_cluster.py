"""`mlcbuild tune` on a cluster: candidates are compiled and measured by nodes, and their records come home."""

from __future__ import annotations

import json

import pytest

from mlcbuild.tuning.record import Outcome
from mlcbuild.tuning.store import RecordStore
from tests.compiler.tiny_models import TINY
from tests.end_to_end.kernel_cache import KernelCache
from tests.execution.ray.conftest import ClusterWorld

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

LIBRARY = """\
[workspace]
name = "example"

[[model]]
name = "one"
config = "one.json"

[[model_library]]
name = "a"
model = ":one"
quantization = "q4f32_1"
platform = "@platforms//:x86-64-v2"
tuning = "2 trials"
"""


def test_nodes_measure_candidates_and_nothing_is_measured_at_home(
    world: ClusterWorld, kernel_cache: KernelCache
) -> None:
    world.write("BUILD.toml", LIBRARY)
    world.write("one.json", json.dumps(TINY))
    kernel_cache.lend(world.cache)
    done = world.start("tune", "//:a", "--output=json")
    out, err = done.communicate(timeout=600)
    assert done.returncode == 0, err
    assert json.loads(out)["trials"] == 2
    store = RecordStore(root=world.cache / "mlcbuild")
    (platform,) = store.platforms()
    records = store.records(platform)
    assert len({(record.kernel, record.shape) for record in records}) == 2
    assert {record.outcome for record in records} == {Outcome.MEASURED}
    assert all(record.device and record.threads >= 1 for record in records)
    lock = store.root / "tuning" / "measuring.lock"
    assert not lock.exists(), "who measures at home takes this machine's lock"
