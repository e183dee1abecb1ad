"""Packages of quantized checkpoints against transformers, with the weights that the checkpoints stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler import schemes
from tests.compiler.parity import bound, compare, reference, sequences
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.quantized_checkpoints import Quantizer, awq, gptq, pack_quantized, quantized_tensors, write
from tests.compiler.running import Library, random_model
from tests.compiler.staged_weights import imported, quantized, stored
from tests.compiler.test_quantized_checkpoints import AWQ, GPTQ, packed_config

_CONFIG: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quantization", "quantizer", "scheme"),
    [
        ({**AWQ, "group_size": 128}, awq(128), "q4f16_autoawq"),
        pytest.param(
            {**GPTQ, "group_size": 128}, gptq(128, 4, symmetric=True), "q4f16_1", marks=pytest.mark.exhaustive
        ),
        pytest.param(
            packed_config(num_bits=8, strategy="channel", group_size=None),
            pack_quantized(-1, 8),
            "q8f16_ft",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_logits_are_those_of_the_restored_weights(
    quantization: dict[str, object], quantizer: Quantizer, scheme: str, tmp_path: Path, kernel_store: Path
) -> None:
    import torch

    stored_tensors, numbers = quantized_tensors(_CONFIG, quantizer)
    for name in numbers:
        if name.endswith("norm.weight"):
            stored_tensors[name] += 1
    imported(
        tmp_path, write(tmp_path / "m.safetensors", stored_tensors), {**_CONFIG, "quantization_config": quantization}
    )
    weights = stored(tmp_path, quantized(tmp_path, scheme))
    of = schemes.scheme(scheme)
    meant = schemes.restored(_CONFIG, of, weights)
    for name in ("self_attn.k_proj", "mlp.up_proj", "mlp.down_proj"):
        weight = f"model.layers.1.{name}.weight"
        np.testing.assert_array_equal(meant[weight].astype(np.float16), numbers[weight])
    model = random_model(_CONFIG)
    model.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in meant.items()})
    path = compile_library(_CONFIG, scheme, CPU_TARGET, tmp_path, kernel_store=kernel_store)
    texts = sequences(320)
    expected = [reference(model, text) for text in texts]
    allowed = bound(_CONFIG, of, float(np.abs(expected[0]).max()))
    compare(Library.load(path, weights), texts, expected, allowed=allowed)
