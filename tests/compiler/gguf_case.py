"""A small model of an architecture of GGUF files, and what many of them have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlcbuild.compiler.models.architecture.rotary_tables import llama3_frequencies, plain_frequencies
from tests.compiler.tiny_models import Array

BOUND = 1e-4
# llama.cpp looks GELU up in a table of float16 numbers.
GELU = 2e-3


@dataclass(frozen=True, kw_only=True)
class GGUFCase:
    """A file of an architecture: the `config.json` that it stands for, metadata beside those that all decoders share
    (None for those of them that it lacks), and tensors beside the model's parameters. `kind` is the type of its
    matrices whose names match `stored_so`; with `fused_experts`, gate and up of experts are one; with `half_norms`,
    norms are numbers that float16 has, so that packages have the same; `others` are types of matrices by patterns of
    their names. `context` is how much text llama.cpp makes room
    for: some models rotate otherwise where it is longer than a length. `overrides` are a library's, for the same
    reason.

    `bound` is the largest difference of logits from llama.cpp's, relative to the largest logit; None where llama.cpp
    computes something else, as `reason` says.
    """

    architecture: str
    config: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Array] = field(default_factory=dict)
    kind: str = "F32"
    stored_so: str = r".*\.weight"
    context: int = 256
    overrides: Mapping[str, int] = field(default_factory=dict)
    bound: float | None = BOUND
    reason: str = ""
    fused_experts: bool = False
    half_norms: bool = False
    others: Mapping[str, str] = field(default_factory=dict)
    in_ci: bool = False


SIZES: Mapping[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "rms_norm_eps": 1e-6,
}
ALL_HEADS = {"num_key_value_heads": 4}
LAYER_NORM = {"attention.layer_norm_epsilon": 1e-5}
WINDOW = {"sliding_window": 16, "num_hidden_layers": 4, "head_dim": 32}
TURNED_IN_WINDOW = {"attention.sliding_window": 16}
EXPERTS = {"expert_count": 6, "expert_used_count": 2}
YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 128,
}
FACTORS = {
    "long": np.array([1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0], np.float32),
    "short": np.array([1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5], np.float32),
}
FACTOR_TENSORS = {f"rope_factors_{name}.weight": factors for name, factors in FACTORS.items()}


def longrope(original: int) -> dict[str, Any]:
    return {
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
        "original_max_position_embeddings": original,
        "rope_scaling": {
            "rope_type": "longrope",
            "attention_factor": 1.25,
            **{f"{name}_factor": [round(float(number), 1) for number in factors] for name, factors in FACTORS.items()},
        },
    }


def longrope_metadata(original: int) -> dict[str, Any]:
    return {
        "rope.scaling.type": "longrope",
        "rope.scaling.attn_factor": 1.25,
        "rope.scaling.original_context_length": original,
    }


def llama3_factors(head_dim: int, *, base: float, factor: float) -> Array:
    """What llama.cpp's converter writes for Llama 3.1's rule: what each pair's frequency is divided by."""
    plain = plain_frequencies(base, head_dim)
    scaled = llama3_frequencies(plain, factor=factor, low=1.0, high=4.0, original=8192)
    return (np.array(plain) / np.array(scaled)).astype(np.float32)


def case_of(model_type: str, /, architecture: str, config: Mapping[str, Any] | None = None, **own: Any) -> GGUFCase:
    return GGUFCase(architecture=architecture, config={**SIZES, "model_type": model_type, **(config or {})}, **own)
