"""Small models of families with recurrent layers, alone or beside attention."""

from __future__ import annotations

from typing import Any

from tests.compiler.family_case import SIZES, FamilyCase, case_of

_MAMBA: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_heads": 8,
    "head_dim": 16,
    "state_size": 24,
    "n_groups": 2,
    "chunk_size": 8,
    "vocab_size": 320,
}
_HYBRID = SIZES | {
    "num_hidden_layers": 5,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
}
_GRANITE_4: dict[str, Any] = {
    **SIZES,
    "num_hidden_layers": 4,
    "layer_types": ["mamba", "attention", "mamba", "mamba"],
    "num_experts_per_tok": 2,
    "shared_intermediate_size": 96,
    "mamba_n_heads": 8,
    "mamba_d_state": 24,
    "mamba_chunk_size": 8,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.5,
    "attention_multiplier": 0.2,
    "logits_scaling": 2.0,
}
_QWEN3_5: dict[str, Any] = {
    **_HYBRID,
    "model_type": "qwen3_5_text",
    "linear_num_value_heads": 2,
    "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention", "full_attention"],
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [2, 1, 1],
        "mrope_interleaved": True,
    },
}
_HYBRID_EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 32,
}

RECURRENT: dict[str, FamilyCase] = {
    "granitemoehybrid": case_of("granitemoehybrid", sizes=_GRANITE_4, num_local_experts=6),
    "granitemoehybrid-dense": case_of(
        "granitemoehybrid", sizes=_GRANITE_4, num_local_experts=0, position_embedding_type="rope"
    ),
    "granitemoehybrid-attention": case_of(
        "granitemoehybrid",
        num_local_experts=0,
        shared_intermediate_size=96,
        position_embedding_type="rope",
        layer_types=["attention", "attention", "attention"],
    ),
    "mamba2": case_of("mamba2", sizes=_MAMBA, time_step_limit=[0.0, 0.8], in_ci=True),
    "mamba2-biases": case_of("mamba2", sizes=_MAMBA, use_bias=True, use_conv_bias=False, tie_word_embeddings=True),
    "qwen3_next": case_of("qwen3_next", sizes=_HYBRID | _HYBRID_EXPERTS),
    "qwen3_5": case_of("qwen3_5_text", sizes=_HYBRID, in_ci=True),
    "qwen3_5_moe": case_of("qwen3_5_moe_text", sizes=_HYBRID | _HYBRID_EXPERTS),
    "qwen3_5-vision": FamilyCase(
        config={"model_type": "qwen3_5", "text_config": _QWEN3_5, "tie_word_embeddings": False},
        reference=_QWEN3_5,
        checkpoint=lambda tensors: {
            name.replace("model.", "model.language_model.", 1): tensor for name, tensor in tensors.items()
        },
    ),
}
