"""Checkpoints that are quantized already, built by the command line: kept where the scheme stores the same integers,
refused before any work where they are not read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.compiler import schemes
from tests.compiler.quantized_checkpoints import awq, quantized_tensors, write
from tests.compiler.staged_weights import stored
from tests.compiler.test_quantized_checkpoints import AWQ, config_of
from tests.compiler.tiny_llama import TINY_LLAMA
from tests.compiler.tiny_models import ONE_TOKEN
from tests.end_to_end.world import HEAD, World

_QUANTIZATION = {**AWQ, "group_size": 64}


def _folder(world: World, name: str, quantization: dict[str, object]) -> str:
    world.write(f"{name}/config.json", json.dumps(config_of(quantization)))
    world.write(f"{name}/tokenizer.json", ONE_TOKEN)
    tensors, _ = quantized_tensors(config_of(_QUANTIZATION), awq(64))
    write(world.root / name / "model.safetensors", tensors)
    return f'\n[[model]]\nname = "{name}-model"\nsource = "{name}"\n'


@pytest.mark.slow
def test_a_quantized_checkpoint_is_built_into_several_schemes(tmp_path: Path) -> None:
    world = World(tmp_path)
    targets = "".join(
        f'\n[[quantized_weights]]\nname = "{scheme}"\nmodel = ":awq-model"\nquantization = "{scheme}"\n{more}'
        for scheme, more in (("q8f16_1", ""), ("q4f16_1", "allow_requantize = true\n"))
    )
    world.write("BUILD.toml", HEAD + _folder(world, "awq", _QUANTIZATION) + targets)
    done = world.build("//...")
    assert done.code == 0, done.err
    # Integers of 4 bits with zero points fit into 8 bits as they are, and not into symmetric ones of 4.
    _, restored = quantized_tensors(config_of(_QUANTIZATION), awq(64))
    weight = "model.layers.1.mlp.up_proj.weight"
    errors = {}
    for scheme in ("q8f16_1", "q4f16_1"):
        index = json.loads((world.output(scheme) / "tensor-cache.json").read_text())
        meant = schemes.restored(TINY_LLAMA, schemes.scheme(scheme), stored(world.output(scheme), index))
        errors[scheme] = float(np.abs(meant[weight] - restored[weight].astype(np.float32)).max())
    assert errors["q8f16_1"] == 0
    assert errors["q4f16_1"] > 0


def test_what_is_not_read_is_refused_before_anything_runs(tmp_path: Path) -> None:
    world = World(tmp_path)
    models = _folder(world, "gemv", {**_QUANTIZATION, "version": "gemv"})
    models += _folder(world, "aqlm", {"quant_method": "aqlm"})
    targets = "".join(
        f'\n[[quantized_weights]]\nname = "{name}-weights"\nmodel = ":{name}-model"\nquantization = "q4f16_1"\n'
        for name in ("gemv", "aqlm")
    )
    world.write("BUILD.toml", HEAD + models + targets)
    done = world.build("//...")
    assert done.code == 7
    assert 'the field "version" is "gemv"; the layout that is read is "gemm"' in done.err
    assert "the weights are quantized already (aqlm), in a way that is not read" in done.err
    assert not world.store.exists()
