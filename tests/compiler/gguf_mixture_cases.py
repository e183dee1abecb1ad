"""Small GGUF files of mixtures of experts, and of models with latent attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.compiler.gguf_case import (
    ALL_HEADS,
    EXPERTS,
    FACTOR_TENSORS,
    TURNED_IN_WINDOW,
    WINDOW,
    YARN,
    GGUFCase,
    case_of,
    longrope,
)

_LATENT: Mapping[str, Any] = {
    **ALL_HEADS,
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}
_LATENT_METADATA: Mapping[str, Any] = {
    **EXPERTS,
    "attention.head_count_kv": 1,
    "attention.key_length": 48,
    "attention.value_length": 32,
    "attention.key_length_mla": 32,
    "attention.value_length_mla": 16,
    "attention.q_lora_rank": 32,
    "attention.kv_lora_rank": 32,
    "rope.dimension_count": 16,
    "expert_feed_forward_length": 32,
    "expert_shared_count": 1,
    "leading_dense_block_count": 1,
}
_GROWING: Mapping[str, Any] = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "mscale": 0.7,
    "mscale_all_dim": 0.7,
}


_GPT_OSS: dict[str, Any] = {
    **WINDOW,
    "num_hidden_layers": 3,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 150000.0},
}
_GPT_OSS_METADATA: dict[str, Any] = {
    **EXPERTS,
    **TURNED_IN_WINDOW,
    "expert_feed_forward_length": 96,
    "rope.freq_base": 150000.0,
}

MIXTURES: Mapping[str, GGUFCase] = {
    "llama4": case_of(
        "llama4_text",
        "llama4",
        {
            "head_dim": 16,
            "num_hidden_layers": 4,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "intermediate_size": 32,
            "intermediate_size_mlp": 96,
            "interleave_moe_layer_step": 2,
            "attention_chunk_size": 8192,
            "rope_theta": 500000.0,
        },
        metadata={
            "expert_count": 4,
            "expert_used_count": 1,
            "feed_forward_length": 96,
            "expert_feed_forward_length": 32,
            "interleave_moe_layer_step": 2,
            "rope.freq_base": 500000.0,
        },
    ),
    "mixtral": case_of(
        "mixtral",
        "llama",
        {"num_local_experts": 6, "sliding_window": None, "rope_theta": 10000.0},
        metadata=EXPERTS,
    ),
    "qwen2_moe": case_of(
        "qwen2_moe",
        "qwen2moe",
        {
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 64,
        },
        metadata={**EXPERTS, "expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 64},
    ),
    "qwen3_moe": case_of(
        "qwen3_moe",
        "qwen3moe",
        {
            "head_dim": 32,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "norm_topk_prob": True,
        },
        metadata={**EXPERTS, "expert_feed_forward_length": 32},
    ),
    "olmoe": case_of(
        "olmoe",
        "olmoe",
        {**ALL_HEADS, "num_experts": 6, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5},
        metadata=EXPERTS,
    ),
    "granitemoe": case_of(
        "granitemoe",
        "granitemoe",
        {
            "num_local_experts": 6,
            "attention_multiplier": 0.2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "logits_scaling": 2.0,
        },
        metadata={
            **EXPERTS,
            "attention.scale": 0.2,
            "embedding_scale": 3.0,
            "residual_scale": 0.5,
            "logit_scale": 2.0,
        },
    ),
    "granitemoeshared": case_of(
        "granitemoeshared",
        "granitemoe",
        {
            "num_local_experts": 6,
            "shared_intermediate_size": 64,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.5,
            "logits_scaling": 2.0,
        },
        metadata={
            **EXPERTS,
            "attention.scale": 0.2,
            "residual_scale": 0.5,
            "logit_scale": 2.0,
            "expert_shared_feed_forward_length": 64,
        },
    ),
    "deepseek": case_of(
        "deepseek",
        "deepseek",
        {
            "n_routed_experts": 6,
            "num_experts_per_tok": 2,
            "n_shared_experts": 2,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 1,
        },
        metadata={
            **EXPERTS,
            "expert_feed_forward_length": 32,
            "expert_shared_count": 2,
            "leading_dense_block_count": 1,
            "expert_weights_scale": 1.0,
        },
    ),
    "deepseek_v2": case_of(
        "deepseek_v2",
        "deepseek2",
        {**_LATENT, "topk_method": "greedy", "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.5}
        | {"rope_scaling": _GROWING},
        metadata={
            **_LATENT_METADATA,
            **YARN,
            "rope.scaling.yarn_log_multiplier": 0.07,
            "expert_weights_scale": 1.5,
            "expert_gating_func": 1,
        },
    ),
    "deepseek_v3": case_of(
        "deepseek_v3",
        "deepseek2",
        {**_LATENT, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": True},
        metadata={
            **_LATENT_METADATA,
            "expert_weights_scale": 2.5,
            "expert_weights_norm": True,
            "expert_gating_func": 2,
        },
    ),
    "deepseek_v3-groups": case_of(
        "deepseek_v3",
        "deepseek2",
        {**_LATENT, "n_group": 3, "topk_group": 2, "routed_scaling_factor": 2.5, "norm_topk_prob": True},
        metadata={
            **_LATENT_METADATA,
            "expert_weights_scale": 2.5,
            "expert_weights_norm": True,
            "expert_gating_func": 2,
            "expert_group_count": 3,
            "expert_group_used_count": 2,
        },
    ),
    "minicpm3": case_of(
        "minicpm3",
        "minicpm3",
        {
            **ALL_HEADS,
            "kv_lora_rank": 32,
            "q_lora_rank": 24,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 16,
            "v_head_dim": 16,
            "rope_scaling": {**longrope(512)["rope_scaling"], "attention_factor": 1.0},
            "original_max_position_embeddings": 512,
        },
        metadata={
            "attention.q_lora_rank": 24,
            "attention.kv_lora_rank": 32,
            "attention.value_length": 16,
            "rope.dimension_count": 16,
        },
        tensors=FACTOR_TENSORS,
    ),
    "phimoe": case_of(
        "phimoe",
        "phimoe",
        {"num_local_experts": 6, "attention_bias": True, "lm_head_bias": True, "rms_norm_eps": 1e-5}
        | {"rope_theta": 10000.0},
        metadata=EXPERTS,
        bound=None,
        reason="its norms do not subtract the mean, and its router is a softmax",
    ),
    "gpt_oss": case_of(
        "gpt_oss",
        "gpt-oss",
        _GPT_OSS,
        metadata=_GPT_OSS_METADATA,
        in_ci=True,
    ),
    "gpt_oss-mxfp4": case_of(
        "gpt_oss",
        "gpt-oss",
        _GPT_OSS,
        metadata=_GPT_OSS_METADATA,
        kind="MXFP4",
        stored_so=r".*_exps\.weight",
    ),
    # YaRN's blend ends at a whole pair, so that rounding its ends, as llama.cpp does, changes nothing.
    "gpt_oss-yarn": case_of(
        "gpt_oss",
        "gpt-oss",
        _GPT_OSS
        | {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 172240.0,
                "factor": 4.0,
                "original_max_position_embeddings": 128,
                "truncate": False,
            },
        },
        metadata=_GPT_OSS_METADATA | YARN | {"rope.freq_base": 172240.0},
    ),
}
