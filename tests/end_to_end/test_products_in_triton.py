"""Libraries whose products are in Triton, built through the command line without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compiler.test_mixtures import MODELS
from tests.compiler.tiny_models import TINY
from tests.end_to_end.kernel_cache import KernelCache
from tests.end_to_end.world import World
from tests.parity_packages import parity_package

parity_package("triton")

pytestmark = pytest.mark.slow

BUILD_FILE = """\
[workspace]
name = "products"

[[platform]]
name = "gpu"
kind = "cuda"
arch = ["{arch}"]
kernels = "triton"

[[model]]
name = "shape"
config = "config.json"

[[model_library]]
name = "library"
model = ":shape"
quantization = "{quantization}"
platform = ":gpu"
overrides = {{ context_window_size = 64, prefill_chunk_size = 16 }}
"""

_CONFIGS = {"llama": TINY, "mixtral": MODELS["mixtral"]}


@pytest.mark.parametrize(
    ("arch", "quantization", "model"),
    [
        ("sm_80", "fp8_e4m3fn_bf16_block_scale", "llama"),
        *(
            pytest.param(arch, "fp8_e4m3fn_bf16_block_scale", "mixtral", marks=pytest.mark.exhaustive)
            for arch in ("sm_80", "sm_90a")
        ),
        *(
            pytest.param(arch, scheme, "llama", marks=pytest.mark.exhaustive)
            for arch in ("sm_80", "sm_90a")
            for scheme in ("fp8_e4m3fn_bf16_block_scale", "e4m3_e4m3_f16", "int8_int8_f16")
            if (arch, scheme) != ("sm_80", "fp8_e4m3fn_bf16_block_scale")
        ),
    ],
)
def test_a_library_is_built_and_names_them(
    tmp_path: Path, kernel_cache: KernelCache, arch: str, quantization: str, model: str
) -> None:
    world = World(tmp_path)
    world.write("BUILD.toml", BUILD_FILE.format(arch=arch, quantization=quantization))
    world.write("config.json", json.dumps(_CONFIGS[model]))
    with kernel_cache.used_by(world.root, world.cache):
        done = world.build("//:library")
    assert done.code == 0, done.err
    shown = world.mlcbuild("show", "//:library", "--output", "json")
    kernels = json.loads(shown.out)["kernels"]
    in_triton = {name.split()[0] for name in kernels["triton"]}
    rounding = set() if quantization.startswith("int8") else {"quantize_rows"}
    grouped = {"grouped_matmul"} if model == "mixtral" else set()
    assert in_triton == {"batch_prefill_paged_kv", "batch_prefill_ragged_kv", "scaled_matmul", *rounding, *grouped}
    others = [name for source, names in kernels.items() if source != "triton" for name in names]
    assert not any("dequantize" in name or "round_activations" in name for name in others)
