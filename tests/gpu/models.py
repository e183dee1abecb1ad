"""Small models of several families, by their model types: the fields of a config.json without `model_type`."""

from __future__ import annotations

from typing import Any

_SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 512,
    "max_position_embeddings": 512,
}
_WINDOW = {"sliding_window": 16}
_EXPERTS = {"num_experts_per_tok": 2, "tie_word_embeddings": False}
_YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "mscale": 0.7,
    "mscale_all_dim": 0.9,
}
_LATENT = {name: size for name, size in _SIZES.items() if name not in ("head_dim", "num_key_value_heads")} | {
    "num_key_value_heads": 4,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 1,
}
_LINEAR = {
    "num_hidden_layers": 5,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 48,
    "linear_value_head_dim": 32,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": _SIZES | {"head_dim": 32},
    "gemma2": _SIZES
    | _WINDOW
    | {"query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "gemma3_text": _SIZES
    | _WINDOW
    | {"num_hidden_layers": 5, "sliding_window_pattern": 3, "rope_theta": 50000.0, "query_pre_attn_scalar": 24},
    "mixtral": _SIZES | _EXPERTS | {"num_local_experts": 4, "sliding_window": None},
    "qwen3_moe": _SIZES
    | _EXPERTS
    | {"num_experts": 6, "moe_intermediate_size": 64, "norm_topk_prob": True, "mlp_only_layers": [0]},
    "gpt_oss": _SIZES | _WINDOW | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "llama4_text": _SIZES
    | {
        "intermediate_size": 64,
        "intermediate_size_mlp": 192,
        "interleave_moe_layer_step": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "attention_chunk_size": 16,
        "floor_scale": 5,
        "attn_scale": 0.7,
        "rms_norm_eps": 0.01,
    },
    "qwen3": _SIZES,
    "deepseek_v2": _LATENT | {"q_lora_rank": None},
    "deepseek_v3": _LATENT | {"q_lora_rank": 64, "n_group": 2, "topk_group": 1, "rope_scaling": _YARN},
    "phi": {name: size for name, size in _SIZES.items() if name != "head_dim"} | {"partial_rotary_factor": 0.5},
    "gpt_neox": {name: size for name, size in _SIZES.items() if name not in ("head_dim", "num_key_value_heads")},
    "mamba2": {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_heads": 8,
        "head_dim": 32,
        "state_size": 40,
        "n_groups": 2,
        "chunk_size": 16,
        "vocab_size": 512,
        "tie_word_embeddings": False,
    },
    "qwen3_5_text": _SIZES | _LINEAR,
    "bert": _SIZES,
    "qwen3_next": _SIZES | _LINEAR | _EXPERTS | {"num_experts": 6, "moe_intermediate_size": 64},
}
ENCODERS = ("bert",)
