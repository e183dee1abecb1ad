"""A second model whose layers have the shapes of the first one's: its own graph is compiled, and no kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compiler.tiny_models import TINY
from tests.end_to_end.kernel_cache import OF_KERNELS, KernelCache
from tests.end_to_end.world import World

pytestmark = pytest.mark.slow

BUILD_FILE = """\
[workspace]
name = "shapes"

[[platform]]
name = "triton"
kind = "cuda"
arch = ["sm_80"]
kernels = "triton"
"""
MODEL = """
[[model]]
name = "{name}"
config = "{name}.json"

[[model_library]]
name = "{name}-library"
model = ":{name}"
quantization = "q4f16_1"
platform = "{platform}"
overrides = {{ context_window_size = 64, prefill_chunk_size = 16 }}
"""
OF_KERNELS_OF_TRITON = OF_KERNELS | {"CompileTriton"}


@pytest.mark.parametrize("platform", ["@platforms//:x86-64-v2", pytest.param(":triton", marks=pytest.mark.exhaustive)])
def test_a_second_model_of_equal_shapes_compiles_no_kernel(
    platform: str, tmp_path: Path, kernel_cache: KernelCache
) -> None:
    world = World(tmp_path)
    models = {"one": TINY, "two": {**TINY, "model_type": "mistral", "sliding_window": None}}
    tables = [MODEL.format(name=name, platform=platform) for name in models]
    world.write("BUILD.toml", "".join([BUILD_FILE, *tables]))
    for name, config in models.items():
        world.write(f"{name}.json", json.dumps(config))
    with kernel_cache.used_by(world.root, world.cache):
        done = world.build("//:one-library")
    assert done.code == 0, done.err
    done = world.build("--verbose", "//:two-library")
    assert done.code == 0, done.err
    assert "Export" in done.err, "its functions are another family's"
    assert "Lower" in done.err
    assert {name for name in OF_KERNELS_OF_TRITON if name in done.err} == set()
    assert done.actions["disk_hits"] >= 20, "two for each of its kernels"
