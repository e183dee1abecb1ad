"""A build with calibration, from a model's file and a text to its weights: what is shared, and what a change reruns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compiler.tiny_models import checkpoint, write_gguf
from tests.end_to_end.kernel_cache import KernelCache
from tests.end_to_end.world import World

_HEAD = """\
[workspace]
name = "example"

[[model]]
name = "model"
source = "tiny.gguf"

[[calibration_text]]
name = "text"
texts = ["text.txt"]
samples = 4
tokens = 16
shards = 2
"""
_WEIGHTS = """
[[quantized_weights]]
name = "{name}"
model = ":model"
quantization = "{quantization}"
{more}
"""
_CALIBRATED = 'calibration = ":text"'


def _table(name: str, quantization: str, *lines: str) -> str:
    return _WEIGHTS.format(name=name, quantization=quantization, more="\n".join(lines))


@pytest.mark.slow
def test_weights_are_calibrated_by_an_attribute(tmp_path: Path, kernel_cache: KernelCache) -> None:
    world = World(tmp_path)
    write_gguf(world.root / "tiny.gguf", checkpoint())
    world.write("text.txt", "".join(f"The {number}th sentence of a text is here. " for number in range(40)))
    tables = (
        _table("plain", "q4f16_1"),
        _table("awq", "q4f16_1", _CALIBRATED),
        _table("smooth", "int8_int8_f16", _CALIBRATED, 'calibration_method = "smoothquant"'),
        _table("smooth-plain", "int8_int8_f16"),
        _table("auto", "auto", _CALIBRATED, 'budget = "6 bits"'),
    )
    world.write("BUILD.toml", _HEAD + "".join(tables))
    with kernel_cache.used_by(world.root, world.cache):
        done = world.build(":all")
        assert done.code == 0, done.err

    def shard(name: str) -> bytes:
        return (world.output(name) / "params_shard_0.bin").read_bytes()

    for calibrated, plain in (("awq", "plain"), ("smooth", "smooth-plain")):
        assert len(shard(calibrated)) == len(shard(plain))
        assert shard(calibrated) != shard(plain)
    chosen = json.loads((world.output("auto") / "precision.json").read_text())
    assert chosen["measured"]["bytes"] <= chosen["measured"]["budget_bytes"]
    assert any(chosen["measured"]["errors"].values())
    assert world.build(":all").actions.keys() == {"up_to_date"}
