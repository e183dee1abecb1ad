"""Logits of quantized models with latent attention, which have a matrix twice: quantized, and, by heads, as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiler import schemes
from tests.compiler.family_cases import CASES
from tests.compiler.parity import check_logits
from tests.compiler.running import random_model, store

# Every expert is used, so that no rounding chooses another one.
_CONFIG = {**CASES["deepseek_v2"].config, "num_hidden_layers": 2, "n_routed_experts": 4, "num_experts_per_tok": 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    "quantization", ["q4f16_1", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("q4f32_1", "q0f16"))]
)
def test_logits_are_those_of_the_restored_weights(quantization: str, tmp_path: Path, kernel_store: Path) -> None:
    scheme, model = schemes.scheme(quantization), random_model(_CONFIG)
    store(model, scheme)  # The model's numbers are now some that the scheme has, also where it does not round them.
    weights = store(model, scheme)
    check_logits(_CONFIG, quantization, tmp_path, kernel_store=kernel_store, known=(model, weights))
