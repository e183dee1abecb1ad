"""Compiled llamas against transformers, with the same numbers for weights.

The reference runs in float32 on weights as the scheme stores them (for quantized schemes: restored from the integers
and scales). So what is left are roundings. Every tensor that is handed from one kernel to the next is rounded once, to
within u of its value (u = 2^-11 for float16); there are `_ROUNDINGS_A_LAYER` of them in a layer and two more before the
logits, and each moves the logits by at most u times the largest. In float32 (u = 2^-24) the sums matter: roundings in a
sum of k products add like a random walk, to sqrt(k) u.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from tests.compiler import schemes
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.running import Array, Library, random_model, store

# norm, query-key-value, rotation, attention, residual; norm, gate and up, activation, residual
_ROUNDINGS_A_LAYER = 9

_BASE: dict[str, object] = {
    "model_type": "llama",
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "vocab_size": 320,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
}
_MODELS: dict[str, dict[str, object]] = {
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


# Every model and every quantization is seen; the other pairs, whose parts are all in these, by `pytest -m exhaustive`.
_PAIRS = {
    *(("grouped-64-tied", quantization) for quantization in schemes.NAMES),
    ("bias-80-linear", "q0f32"),
    ("bias-80-linear", "q4f16_1"),
    ("grouped-128-llama3", "q0f16"),
    ("grouped-128-llama3", "q4f32_1"),
}


@pytest.fixture(scope="module")
def kernel_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled kernels by name, shared by the libraries of this module."""
    return tmp_path_factory.mktemp("kernels")


def _bound(config: dict[str, Any], scheme: QuantizationScheme, largest: float) -> float:
    roundings = config["num_hidden_layers"] * _ROUNDINGS_A_LAYER + 2
    if scheme.model_dtype == "float16":
        return float(roundings * 2.0**-11 * largest)
    longest_sum = max(config["hidden_size"], config["intermediate_size"])
    return float(roundings * math.sqrt(longest_sum) * 2.0**-24 * largest)


def _reference(model: Any, tokens: list[int]) -> Array:
    """Logits (n, vocabulary) of every token."""
    import torch

    with torch.no_grad():
        logits: Array = model(torch.tensor([tokens])).logits[0].numpy()
    return logits


def _sequences(vocabulary: int) -> tuple[list[int], list[int]]:
    generator = np.random.default_rng(7)
    first, second = (generator.integers(0, vocabulary, size).tolist() for size in (37, 21))
    return first, second


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        pytest.param(name, quantization, marks=() if (name, quantization) in _PAIRS else pytest.mark.exhaustive)
        for name in _MODELS
        for quantization in schemes.NAMES
    ],
)
def test_logits_equal_those_of_transformers(name: str, quantization: str, tmp_path: Path, kernel_store: Path) -> None:
    config: dict[str, Any] = _MODELS[name]
    scheme = schemes.scheme(quantization)
    model = random_model(config)
    weights = store(model, scheme)
    path = compile_library(config, quantization, CPU_TARGET, tmp_path, kernel_store=kernel_store)
    library = Library.load(path, weights)
    first, second = _sequences(config["vocab_size"])
    one, two = _reference(model, first), _reference(model, second)
    bound = _bound(config, scheme, float(np.abs(one).max()))

    def check(found: Array, expected: Array) -> None:
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=0, atol=bound)

    # One sequence: a prompt, then token by token.
    library.add(0)
    check(library.prefill(0, first[:30]), one[29])
    for place in range(30, 33):
        check(library.decode(0, first[place]), one[place])
    # The other beside it: its prompt and the next of the first in one pass, then two steps of both at once.
    library.add(1)
    mixed = library.embed([*second[:18], first[33]])[None]
    last = np.array([17, 18], "int32")
    logits = library.run("batch_prefill", [1, 0], [18, 1], mixed, last)[0]
    check(logits, np.stack([two[17], one[33]]))
    for step in range(2):
        embedded = library.embed([first[34 + step], second[18 + step]])[:, None]
        logits = library.run("batch_decode", [0, 1], [1, 1], embedded)[:, 0]
        check(logits, np.stack([one[34 + step], two[18 + step]]))
    # Every logit of a pass over several tokens.
    library.add(2)
    check(library.run("batch_verify", [2], [21], library.embed(second)[None])[0], two)


@pytest.mark.slow
def test_probabilities_are_those_of_a_softmax(tmp_path: Path, kernel_store: Path) -> None:
    config = _MODELS["grouped-64-tied"]
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


@pytest.mark.slow
def test_a_sliding_window_forgets_what_transformers_forgets(tmp_path: Path, kernel_store: Path) -> None:
    window = 16
    config = _BASE | {
        "model_type": "mistral",
        "hidden_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "sliding_window": window,
    }
    scheme = schemes.scheme("q0f32")
    model = random_model(config)
    weights = store(model, scheme)
    path = compile_library(
        config, "q0f32", CPU_TARGET, tmp_path, kernel_store=kernel_store, overrides={"attention_sink_size": 0}
    )
    library = Library.load(path, weights, window=window)
    tokens, _ = _sequences(320)
    expected = _reference(model, tokens)
    bound = _bound(config, scheme, float(np.abs(expected).max()))
    library.add(0)
    np.testing.assert_allclose(library.prefill(0, tokens[:10]), expected[9], rtol=0, atol=bound)
    for place in range(10, len(tokens)):
        np.testing.assert_allclose(library.decode(0, tokens[place]), expected[place], rtol=0, atol=bound)
