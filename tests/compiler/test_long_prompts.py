"""Prompts of thousands of tokens, in the pieces that a library takes, against transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler import schemes
from tests.compiler.parity import bound, reference
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.running import Library, random_model, store

_TOKENS = 5000
_PIECE = 2048


@pytest.mark.slow
def test_positions_beyond_the_first_thousands_are_seen(tmp_path: Path, kernel_store: Path) -> None:
    """With a base of its own for rotations, as Code Llama has; and in a step after the prompt."""
    config: dict[str, object] = {
        "model_type": "llama",
        "hidden_size": 128,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 320,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192,
        "rope_theta": 1e6,
    }
    scheme = schemes.scheme("q0f32")
    model = random_model(config)
    path = compile_library(config, "q0f32", CPU_TARGET, tmp_path, kernel_store=kernel_store)
    library = Library.load(path, store(model, scheme), context=8192, batch=1)
    tokens = np.random.default_rng(5).integers(0, 320, _TOKENS + 1).tolist()
    expected = reference(model, tokens)
    allowed = bound(config, scheme, float(np.abs(expected).max()))
    library.add(0)
    for begin in range(0, _TOKENS, _PIECE):
        end = min(begin + _PIECE, _TOKENS)
        found = library.prefill(0, tokens[begin:end])
        np.testing.assert_allclose(found, expected[end - 1], rtol=0, atol=allowed)
    np.testing.assert_allclose(library.decode(0, tokens[-1]), expected[-1], rtol=0, atol=allowed)
    # What comes first still counts at the end.
    other = [*tokens[:-1], tokens[-1]]
    other[0] = (tokens[0] + 1) % 320
    difference = np.abs(reference(model, other)[-1] - expected[-1]).max()
    assert difference > 4 * allowed, "the reference itself must tell the first token"
