"""Small models of families whose layers do not all see all of the text."""

from __future__ import annotations

from typing import Any

from tests.compiler.family_case import SIZES, SPECIAL, FamilyCase, case_of

# The first three layers see a chunk, the second and the last have experts.
LLAMA4: dict[str, Any] = {
    **SIZES,
    **SPECIAL,
    "model_type": "llama4_text",
    "num_hidden_layers": 4,
    "head_dim": 16,
    "intermediate_size": 48,
    "intermediate_size_mlp": 96,
    "interleave_moe_layer_step": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "attention_chunk_size": 16,
    "floor_scale": 5,
    "attn_scale": 0.7,
    "rms_norm_eps": 0.01,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 1.0,
        "original_max_position_embeddings": 64,
    },
}

_WINDOWED: dict[str, Any] = {
    **SIZES,
    **SPECIAL,
    "num_hidden_layers": 4,
    "head_dim": 32,
    "sliding_window": 16,
}
_FULL, _SLIDING = "full_attention", "sliding_attention"
_QWEN = {"use_sliding_window": True, "max_window_layers": 2, "head_dim": 16}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
# Where all layers have the window, passes would have no more tokens than it.
_LONG_PASSES = {"prefill_chunk_size": 64}

WINDOWED: dict[str, FamilyCase] = {
    # Caps so low that they are felt.
    "gemma2": case_of(
        "gemma2",
        sizes=_WINDOWED,
        query_pre_attn_scalar=24,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
        in_ci=True,
    ),
    "gemma3_text": case_of(
        "gemma3_text",
        sizes=_WINDOWED | {"num_hidden_layers": 5},
        sliding_window_pattern=3,
        rope_theta=50000.0,
        query_pre_attn_scalar=24,
    ),
    "cohere2": case_of("cohere2", sizes=_WINDOWED | {"head_dim": 16}),
    "olmo3": case_of(
        "olmo3",
        sizes=_WINDOWED,
        rope_parameters={
            _FULL: {"rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0, "original_max_position_embeddings": 64},
            _SLIDING: {"rope_type": "default", "rope_theta": 5e5},
        },
    ),
    "ministral": case_of("ministral", sizes=_WINDOWED, layer_types=[_FULL, _SLIDING, _SLIDING, _FULL]),
    "gpt_oss": case_of(
        "gpt_oss",
        sizes=_WINDOWED | {"num_hidden_layers": 3},
        num_local_experts=6,
        num_experts_per_tok=2,
        swiglu_limit=1.0,
        rms_norm_eps=1e-5,
        in_ci=True,
    ),
    "llama4_text": FamilyCase(config=LLAMA4, in_ci=True),
    "qwen2-window": case_of("qwen2", sizes=_WINDOWED | _QWEN),
    "qwen2_moe-window": case_of(
        "qwen2_moe",
        sizes=_WINDOWED | _QWEN | _EXPERTS,
        max_window_layers=3,
        shared_expert_intermediate_size=48,
        decoder_sparse_step=2,
    ),
    "qwen3-window": case_of("qwen3", sizes=_WINDOWED | _QWEN),
    "qwen3_moe-window": case_of(
        "qwen3_moe", sizes=_WINDOWED | _QWEN | _EXPERTS, norm_topk_prob=True, overrides=_LONG_PASSES
    ),
    "exaone4-window": case_of("exaone4", sizes=_WINDOWED | {"head_dim": 16}, sliding_window_pattern=2),
    "phi3-window": case_of("phi3", sizes=_WINDOWED | {"head_dim": 16}, overrides=_LONG_PASSES),
    "starcoder2-window": case_of("starcoder2", sizes=_WINDOWED | {"head_dim": 16}, overrides=_LONG_PASSES),
    "mixtral-window": case_of(
        "mixtral", sizes=_WINDOWED, num_local_experts=4, num_experts_per_tok=2, overrides=_LONG_PASSES
    ),
    "phimoe-window": case_of(
        "phimoe",
        sizes=_WINDOWED | {"head_dim": 16},
        num_local_experts=4,
        num_experts_per_tok=2,
        overrides=_LONG_PASSES,
    ),
    "ministral3-window": case_of("ministral3", sizes=_WINDOWED, overrides=_LONG_PASSES),
}
