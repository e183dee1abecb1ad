"""SmolLM2-135M has the perplexity in llama.cpp, as a `gguf_package`, that its package has here, but for rounding.

llama.cpp rounds what quantized matrices are multiplied by to 8 bits, in groups of 32 or 256; what F16 and BF16 matrices
are multiplied by, to these types. A package in bfloat16 has all that it computes rounded to it.
docs/quantization.md has the figures of all schemes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.compiler.llama_cpp_perplexity import perplexity
from tests.end_to_end.kernel_cache import KernelCache
from tests.end_to_end.world import World
from tests.smollm2 import smollm2_gguf

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

_TEXT = Path(__file__).parents[2] / "models/texts/alice.txt"
_TABLES = """\
[workspace]
name = "example"

[[model]]
name = "model"
source = "model.gguf"

[[model_package]]
name = "package"
model = ":model"
quantization = "{scheme}"
platform = "@platforms//:x86-64-v3"

[[gguf_package]]
name = "gguf"
model = ":model"
quantization = "{scheme}"

[[perplexity_test]]
name = "perplexity"
package = ":package"
text = "text.txt"
window = 512
size = "enormous"
"""
_NUMBERS, _BFLOAT16, _QUANTIZED = 1e-3, 5e-3, 1.5e-2


@pytest.mark.parametrize(
    ("scheme", "bound"),
    [
        *((name, _NUMBERS) for name in ("q0f32", "q0f16")),
        ("q0bf16", _BFLOAT16),
        *((name, _QUANTIZED) for name in ("q8f16_1", "q4f16_0", "q4f16_1", "q4f16_2")),
        *((name, _QUANTIZED) for name in ("q8_0_f16", "q6_k_f16", "q5_k_f16", "q4_k_f16")),
    ],
)
def test_llama_cpp_expects_the_text_as_the_package_does(
    scheme: str, bound: float, tmp_path: Path, kernel_cache: KernelCache
) -> None:
    world = World(tmp_path)
    shutil.copyfile(smollm2_gguf(), world.root / "model.gguf")
    shutil.copyfile(_TEXT, world.root / "text.txt")
    world.write("BUILD.toml", _TABLES.replace("{scheme}", scheme))
    with kernel_cache.used_by(world.root, world.cache):
        done = world.mlcbuild("test", "--jobs", "1", ":perplexity")
        assert done.code == 0, done.err
        built = world.build(":gguf")
        assert built.code == 0, built.err
    log = world.root / ".mlcbuild/testlogs/default/perplexity/test.json"
    ours = json.loads(log.read_text())["figures"]["perplexity"]
    (file,) = world.output("gguf").iterdir()
    theirs = perplexity(file, _TEXT.read_text(encoding="utf-8"), window=512)
    assert theirs == pytest.approx(ours, rel=bound)
