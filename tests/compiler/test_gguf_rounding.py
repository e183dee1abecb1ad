"""Logits of a file with quantized matrices, as llama.cpp computes them, differ by one thing from those of the same
numbers in float32: llama.cpp multiplies blocks of integers by activations that it rounds to blocks of integers as well.

Of gpt-oss that is the most: where two experts are about as good, rounding has another one chosen, and attention hands
what that adds to a token on to all tokens behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compiler import schemes
from tests.compiler.gguf_cases import CASES
from tests.compiler.gguf_parity import read_file
from tests.compiler.gguf_writing import file_of
from tests.compiler.rounded_activations import round_before_products, rounded_to_blocks
from tests.compiler.running import random_model
from tests.compiler.test_gguf_packages import TEXT, logits, packaged
from tests.compiler.tiny_models import Array

# A number that lies in the middle of two integers may be rounded to the other one.
_ROUNDED_OTHERWISE = 2e-2


@pytest.mark.parametrize("quantization", ["q4f16_0", pytest.param("q8f16_1", marks=pytest.mark.exhaustive)])
def test_gpt_oss_differs_by_rounded_activations_alone(quantization: str, tmp_path: Path) -> None:
    config = CASES["gpt_oss"].config
    read = read_file(file_of(tmp_path / "converted.gguf", CASES["gpt_oss"]))
    path = packaged(tmp_path / "own", config, read.tensors, quantization)
    tensors = read_file(path).tensors
    model = random_model(config)
    _load(model, config, tensors)
    plain = logits(packaged(tmp_path / "plain", config, tensors, "q0f32"))
    assert _errors(plain, _logits(model)).max() <= 1e-5
    quantized = logits(path)
    unrounded = _errors(quantized, _logits(model))
    round_before_products(model, schemes.scheme(quantization), lambda x, _: rounded_to_blocks(x))
    errors = _errors(quantized, _logits(model))
    assert errors[0] <= 1e-6 < unrounded[0]
    assert errors.max() <= _ROUNDED_OTHERWISE < unrounded.max()


def _errors(found: Array, expected: Array) -> Array:
    """Of each token's logits, relative to them."""
    errors: Array = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    return errors


def _logits(model: Any) -> Array:
    import torch

    with torch.no_grad():
        found: Array = model(torch.tensor([TEXT])).logits[0].numpy()
    return found


def _load(model: Any, config: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
    """Experts are apart in a file, and in transformers' model are one tensor, in which gate and up take turns."""
    import torch

    state = {name: numbers for name, numbers in tensors.items() if ".experts." not in name or name.endswith("_bias")}
    for layer in range(config["num_hidden_layers"]):
        experts = f"model.layers.{layer}.mlp.experts"
        gate, up, down = (
            np.stack([tensors[f"{experts}.{one}.{kind}_proj.weight"].T for one in range(config["num_local_experts"])])
            for kind in ("gate", "up", "down")
        )
        state[f"{experts}.gate_up_proj"] = np.stack([gate, up], axis=-1).reshape(*gate.shape[:2], -1)
        state[f"{experts}.down_proj"] = down
    model.load_state_dict({name: torch.from_numpy(np.array(numbers)) for name, numbers in state.items()})
