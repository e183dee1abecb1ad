"""Compiled llamas against transformers, with the same numbers for weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm

from tests.compiler import schemes
from tests.compiler.parity import check_logits
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.running import Library, random_model, store

_BASE: dict[str, object] = {
    "model_type": "llama",
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "vocab_size": 320,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
}
MODELS: dict[str, dict[str, object]] = {
    "grouped-64-tied": _BASE
    | {
        "hidden_size": 192,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
        "rope_theta": 100000.0,
    },
    "bias-80-linear": _BASE
    | {
        "hidden_size": 160,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "attention_bias": True,
        "hidden_act": "gelu_pytorch_tanh",
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
    },
    "grouped-128-llama3": _BASE
    | {
        "hidden_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "mlp_bias": True,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
}


# Every model and every kind of kernel is seen; the other pairs, whose parts are all in these, by
# `pytest -m exhaustive`. q3f16_0 has linear layers by columns, a head by rows, and rows that end within a group.
# q4f16_autoawq is seen by test_checkpoint_parity.py.
_OF_SEEN_PARTS = (
    *("q3f16_1", "q4f16_0", "q4bf16_0", "q4f16_2", "q8f16_1", "q8f32_1", "q4f16_autoawq", "q4f16_ft", "q8f16_ft"),
    *("e5m2_e5m2_f16", "fp8_e4m3fn_bf16_block_scale", "fp8_e4m3fn_bf16_channel_scale", "mxfp4_bf16"),
    *("fp8_e4m3fn_bf16_block_scale_static_activation", "q6_k_f16", "q5_k_f16", "q4_k_f16"),
)
_PAIRS = {
    *(("grouped-64-tied", quantization) for quantization in schemes.NAMES if quantization not in _OF_SEEN_PARTS),
    ("bias-80-linear", "q0f32"),
    ("bias-80-linear", "q4f16_1"),
    ("grouped-128-llama3", "q0f16"),
    ("grouped-128-llama3", "q4f32_1"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        pytest.param(name, quantization, marks=() if (name, quantization) in _PAIRS else pytest.mark.exhaustive)
        for name in MODELS
        for quantization in schemes.NAMES
    ],
)
def test_logits_equal_those_of_transformers(name: str, quantization: str, tmp_path: Path, kernel_store: Path) -> None:
    check_logits(MODELS[name], quantization, tmp_path, kernel_store=kernel_store)


@pytest.mark.slow
def test_probabilities_are_those_of_a_softmax(tmp_path: Path, kernel_store: Path) -> None:
    config = MODELS["grouped-64-tied"]
    scheme = schemes.scheme("q0f32")
    weights = store(random_model(config), scheme)
    path = compile_library(config, "q0f32", CPU_TARGET, tmp_path, kernel_store=kernel_store)
    machine = Library.load(path, weights).machine
    generator = np.random.default_rng(3)
    logits = generator.normal(0, 4, (3, 1, 320)).astype("float32")
    logits[2, 0, [5, 9]] = 50.0
    found = machine["softmax_with_temperature"](
        tvm.runtime.tensor(logits), tvm.runtime.tensor(np.array([0.7, 2.0, 0.0], "float32"))
    ).numpy()
    for row, temperature in ((0, 0.7), (1, 2.0)):
        scaled = logits[row, 0].astype("float64") / temperature
        expected = np.exp(scaled - scaled.max())
        np.testing.assert_allclose(found[row, 0], expected / expected.sum(), rtol=1e-4, atol=1e-7)
    assert found[2, 0, [5, 9]].tolist() == [0.5, 0.5]
    assert found[2, 0].sum() == 1.0
