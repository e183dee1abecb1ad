"""A quantized checkpoint is quantized again where a target allows it, and refused before any work where it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compiler.quantized_checkpoints import awq, quantized_tensors, write
from tests.compiler.test_quantized_checkpoints import AWQ, config_of
from tests.compiler.tiny_models import ONE_TOKEN
from tests.end_to_end.world import World

_CONFIG = config_of({**AWQ, "group_size": 128}) | {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
}
_TABLES = """\
[workspace]
name = "example"

[[model]]
name = "model"
source = "checkpoint"

[[quantized_weights]]
name = "weights"
model = ":model"
quantization = "{quantization}"
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    tensors, _ = quantized_tensors(_CONFIG, awq(128))
    made.write("checkpoint/config.json", json.dumps(_CONFIG))
    made.write("checkpoint/tokenizer.json", ONE_TOKEN)
    write(made.root / "checkpoint/model.safetensors", tensors)
    return made


def test_a_mismatch_is_told_at_its_place_before_anything_runs(world: World) -> None:
    world.write("BUILD.toml", _TABLES.format(quantization="q4f16_1"))
    told = world.mlcbuild("build", ":weights")
    assert told.code == 7
    assert told.err == (
        "BUILD.toml:11:16: //:weights: the checkpoint's weights are quantized already (integers of 4 bits in groups of "
        "128 with zero points), and q4f16_1 would quantize them again\n"
        "  what keeps them as they are: q4f16_autoawq, q8f16_1, q8f32_1\n"
        "  one that begins with q0 restores them, and rounds no more\n"
        "  to have them restored and quantized again, write allow_requantize = true\n"
    )
    assert not world.store.exists()


@pytest.mark.parametrize("tables", [{"quantization": "q4f16_autoawq"}, {"quantization": "q0f16"}])
def test_what_keeps_or_restores_them_is_built(world: World, tables: dict[str, str]) -> None:
    world.write("BUILD.toml", _TABLES.format(**tables))
    assert world.build(":weights").code == 0


def test_a_target_that_allows_it_is_built(world: World) -> None:
    world.write("BUILD.toml", _TABLES.format(quantization="q4f16_1") + "allow_requantize = true\n")
    assert world.build(":weights").code == 0


def test_of_a_checkpoint_that_is_made_it_is_told_before_weights_are_read(world: World) -> None:
    tables = _TABLES.replace('source = "checkpoint"', 'source = ":copied"')
    copied = """
[[tool]]
name = "sh"
path = "/bin/sh"

[[command]]
name = "copied"
tool = ":sh"
inputs = ["checkpoint/config.json", "checkpoint/tokenizer.json", "checkpoint/model.safetensors"]
arguments = ["-c", "cp $0 $1 $2 $(dirname $3)", "{inputs}", "{outputs}"]
outputs = ["config.json", "tokenizer.json", "model.safetensors"]
"""
    world.write("BUILD.toml", tables.format(quantization="q4f16_1") + copied)
    built = world.build(":weights")
    assert built.code == 1
    assert "//:weights ConfigureModel failed" in built.err
    assert "allow_requantize = true" in built.err
