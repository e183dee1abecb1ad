"""Small models of every architecture of GGUF files that a family reads, which llama.cpp loads too.

A file has random numbers by the names and in the shapes that the family reads, and metadata as llama.cpp's converter
writes them. So llama.cpp and a library that is built from the file compute the same only if both understand it alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.models.architecture.rotary_tables import llama3_frequencies, plain_frequencies
from mlcbuild.compiler.models.checkpoints.parameters import JoinedLayout, TensorLayout
from tests.compiler.llama_cpp import dequantized, quantized
from tests.compiler.resolving import model_of, parameters_of
from tests.compiler.tiny_models import Array, byte_level_letters

_BOUND = 1e-4
# llama.cpp looks GELU up in a table of float16 numbers.
_GELU = 2e-3


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
    bound: float | None = _BOUND
    reason: str = ""
    fused_experts: bool = False
    half_norms: bool = False
    others: Mapping[str, str] = field(default_factory=dict)
    in_ci: bool = False


_SIZES: Mapping[str, Any] = {
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
_GPT: Mapping[str, Any] = {
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 3,
    "n_positions": 512,
    "vocab_size": 320,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_ALL_HEADS = {"num_key_value_heads": 4}
_LAYER_NORM = {"attention.layer_norm_epsilon": 1e-5}
_TURNED_HALF = {"rope.dimension_count": 8}
_WINDOW = {"sliding_window": 16, "num_hidden_layers": 4, "head_dim": 32}
_TURNED_IN_WINDOW = {"attention.sliding_window": 16}
_EXPERTS = {"expert_count": 6, "expert_used_count": 2}
_LATENT: Mapping[str, Any] = {
    **_ALL_HEADS,
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
    **_EXPERTS,
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
_FULL, _SLIDING = "full_attention", "sliding_attention"
_YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 128,
}
_FACTORS = {
    "long": np.array([1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0], np.float32),
    "short": np.array([1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5], np.float32),
}
_FACTOR_TENSORS = {f"rope_factors_{name}.weight": factors for name, factors in _FACTORS.items()}


_HYBRID: Mapping[str, Any] = {
    "num_hidden_layers": 4,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
_HYBRID_METADATA: Mapping[str, Any] = {
    "full_attention_interval": 4,
    "rope.dimension_count": 8,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 96,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 6,
    "ssm.group_count": 2,
}
_SECTIONS = {"rope.dimension_sections": [2, 1, 1, 0]}
_HYBRID_EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 64,
}
_HYBRID_EXPERTS_METADATA = {
    **_EXPERTS,
    "expert_feed_forward_length": 32,
    "expert_shared_feed_forward_length": 64,
}


_GRANITE_4: Mapping[str, Any] = {
    "attention_multiplier": 0.2,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.5,
    "logits_scaling": 2.0,
    "layer_types": ["mamba", "attention", "mamba"],
    "mamba_n_heads": 8,
    "mamba_d_state": 24,
}
_GRANITE_4_METADATA: Mapping[str, Any] = {
    "attention.scale": 0.2,
    "embedding_scale": 3.0,
    "residual_scale": 0.5,
    "logit_scale": 2.0,
    "attention.head_count_kv": [0, 2, 0],
    "rope.scaling.finetuned": False,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 128,
    "ssm.state_size": 24,
    "ssm.time_step_rank": 8,
    "ssm.group_count": 1,
}


def _predicting_layer(number: int) -> dict[str, Array]:
    """A layer that predicts one more token, as Qwen3.5's converter writes it behind the others."""
    shapes = {
        "attn_norm": (64,),
        "post_attention_norm": (64,),
        "attn_q": (256, 64),
        "attn_k": (64, 64),
        "attn_v": (64, 64),
        "attn_q_norm": (32,),
        "attn_k_norm": (32,),
        "attn_output": (64, 128),
        "ffn_gate": (96, 64),
        "ffn_up": (96, 64),
        "ffn_down": (64, 96),
        "nextn.eh_proj": (64, 128),
        "nextn.enorm": (64,),
        "nextn.hnorm": (64,),
        "nextn.shared_head_norm": (64,),
    }
    return {f"blk.{number}.{name}.weight": np.ones(shape, np.float32) for name, shape in shapes.items()}


def _longrope(original: int) -> dict[str, Any]:
    return {
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
        "original_max_position_embeddings": original,
        "rope_scaling": {
            "rope_type": "longrope",
            "attention_factor": 1.25,
            **{f"{name}_factor": [round(float(number), 1) for number in factors] for name, factors in _FACTORS.items()},
        },
    }


def _longrope_metadata(original: int) -> dict[str, Any]:
    return {
        "rope.scaling.type": "longrope",
        "rope.scaling.attn_factor": 1.25,
        "rope.scaling.original_context_length": original,
    }


def _llama3_factors(head_dim: int, *, base: float, factor: float) -> Array:
    """What llama.cpp's converter writes for Llama 3.1's rule: what each pair's frequency is divided by."""
    plain = plain_frequencies(base, head_dim)
    scaled = llama3_frequencies(plain, factor=factor, low=1.0, high=4.0, original=8192)
    return (np.array(plain) / np.array(scaled)).astype(np.float32)


def _case(model_type: str, /, architecture: str, config: Mapping[str, Any] | None = None, **own: Any) -> GGUFCase:
    return GGUFCase(architecture=architecture, config={**_SIZES, "model_type": model_type, **(config or {})}, **own)


_GPT_OSS: dict[str, Any] = {
    **_WINDOW,
    "num_hidden_layers": 3,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 150000.0},
}
_GPT_OSS_METADATA: dict[str, Any] = {
    **_EXPERTS,
    **_TURNED_IN_WINDOW,
    "expert_feed_forward_length": 96,
    "rope.freq_base": 150000.0,
}
_MATRICES_OF_HYBRIDS = r"(?!.*(conv1d|gate_inp|norm)).*\.weight"
"""llama.cpp's converter leaves convolutions, routers and norms as they are."""
CASES: Mapping[str, GGUFCase] = {
    "llama": _case("llama", "llama", {"attention_bias": False, "mlp_bias": False}),
    "llama3": _case(
        "llama",
        "llama",
        {
            "head_dim": 32,
            "rope_theta": 500000.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        },
        metadata={"rope.freq_base": 500000.0},
        tensors={"rope_freqs.weight": _llama3_factors(32, base=500000.0, factor=8.0)},
    ),
    "qwen2": _case("qwen2", "qwen2"),
    "qwen2-yarn": _case(
        "qwen2",
        "qwen2",
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}},
        metadata=_YARN,
    ),
    "qwen3": _case("qwen3", "qwen3", {"head_dim": 32}),
    "gemma": _case("gemma", "gemma", {"head_dim": 32}, bound=_GELU),
    "gemma2": _case(
        "gemma2",
        "gemma2",
        {
            **_WINDOW,
            "query_pre_attn_scalar": 32,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
        metadata={**_TURNED_IN_WINDOW, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
        bound=_GELU,
    ),
    "gemma3": _case(
        "gemma3_text",
        "gemma3",
        {
            **_WINDOW,
            "num_hidden_layers": 7,
            "query_pre_attn_scalar": 32,
            "rope_theta": 1e6,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "rope_local_base_freq": 10000.0,
        },
        metadata={
            **_TURNED_IN_WINDOW,
            "rope.freq_base": 1e6,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
        bound=_GELU,
    ),
    "phi3": _case(
        "phi3",
        "phi3",
        {"rms_norm_eps": 1e-5},
        metadata={"attention.sliding_window": 0, "rope.scaling.original_context_length": 4096},
    ),
    # The text, and both contexts, are longer than 16 tokens, and no longer than 256.
    "phi3-longrope": _case("phi3", "phi3", _longrope(16), metadata=_longrope_metadata(16), tensors=_FACTOR_TENSORS),
    "phi3-longrope-short": _case(
        "phi3",
        "phi3",
        _longrope(256),
        metadata=_longrope_metadata(256),
        tensors=_FACTOR_TENSORS,
        overrides={"context_window_size": 256},
    ),
    "phi": _case("phi", "phi2", _ALL_HEADS, metadata={**_LAYER_NORM, **_TURNED_HALF}, bound=_GELU),
    "gpt_neox": _case(
        "gpt_neox",
        "gptneox",
        {"num_key_value_heads": 4},
        metadata={**_LAYER_NORM, "use_parallel_residual": True, "rope.dimension_count": 4},
        bound=_GELU,
    ),
    "gpt2": GGUFCase(architecture="gpt2", config={**_GPT, "model_type": "gpt2"}, metadata=_LAYER_NORM, bound=_GELU),
    "gpt_bigcode": GGUFCase(
        architecture="starcoder",
        config={**_GPT, "model_type": "gpt_bigcode"},
        metadata={**_LAYER_NORM, "attention.head_count_kv": 1},
        bound=_GELU,
    ),
    "starcoder2": _case("starcoder2", "starcoder2", metadata=_LAYER_NORM, bound=_GELU),
    "stablelm": _case(
        "stablelm",
        "stablelm",
        {"use_qkv_bias": True},
        metadata={**_LAYER_NORM, "use_parallel_residual": False, "rope.dimension_count": 4},
    ),
    "cohere": _case(
        "cohere",
        "command-r",
        metadata={**_LAYER_NORM, "logit_scale": 0.0625, "rope.freq_base": 500000.0},
    ),
    "cohere2": _case(
        "cohere2",
        "cohere2",
        {"sliding_window": 16, "num_hidden_layers": 4, "logit_scale": 0.25},
        metadata={**_LAYER_NORM, **_TURNED_IN_WINDOW, "logit_scale": 0.25, "rope.scaling.type": "none"},
    ),
    "olmo": _case("olmo", "olmo", metadata=_LAYER_NORM),
    "olmo-clipped": _case("olmo", "olmo", {"clip_qkv": 0.5}, metadata={**_LAYER_NORM, "attention.clamp_kqv": 0.5}),
    "olmo2": _case("olmo2", "olmo2"),
    "olmo3": _case(
        "olmo3",
        "olmo2",
        {
            "sliding_window": 16,
            "num_hidden_layers": 4,
            "rope_parameters": {
                _FULL: {
                    "rope_type": "yarn",
                    "rope_theta": 5e5,
                    "factor": 4.0,
                    "original_max_position_embeddings": 128,
                },
                _SLIDING: {"rope_type": "default", "rope_theta": 5e5},
            },
        },
        metadata={
            **_YARN,
            **_TURNED_IN_WINDOW,
            "rope.freq_base": 5e5,
            "attention.sliding_window_pattern": [True, True, True, False],
        },
    ),
    "granite": _case(
        "granite",
        "granite",
        {
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.1,
            "logits_scaling": 8.0,
        },
        metadata={"attention.scale": 0.1, "embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 8.0},
    ),
    "nemotron": _case("nemotron", "nemotron", metadata={**_LAYER_NORM, **_TURNED_HALF}),
    "glm": _case("glm", "chatglm", {"head_dim": 16}, metadata={"rope.dimension_count": 8}),
    "glm4": _case("glm4", "glm4", {"head_dim": 32}, metadata={"rope.dimension_count": 16}),
    "internlm2": _case("internlm2", "internlm2", {"bias": False}),
    "baichuan": _case("baichuan", "baichuan", {**_ALL_HEADS, "num_hidden_layers": 32}),
    "baichuan-alibi": _case(
        "baichuan",
        "baichuan",
        {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 6, "num_hidden_layers": 40},
    ),
    "orion": _case("orion", "orion", {"rms_norm_eps": 1e-5}, metadata=_LAYER_NORM),
    "minicpm": _case(
        "minicpm",
        "minicpm",
        {"tie_word_embeddings": False, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 16},
        metadata={"embedding_scale": 12.0, "residual_scale": 1.4 / 3**0.5, "logit_scale": 4.0},
    ),
    "exaone4": _case("exaone4", "exaone4", {"sliding_window": None}),
    "exaone4-windows": _case(
        "exaone4",
        "exaone4",
        {"sliding_window": 16, "num_hidden_layers": 64},
        metadata={**_TURNED_IN_WINDOW, "attention.sliding_window_pattern": [True, True, True, False] * 16},
    ),
    "exaone": _case(
        "exaone",
        "exaone",
        {
            "head_dim": 32,
            "rope_theta": 500000.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        },
        metadata={"rope.freq_base": 500000.0},
        tensors={"rope_freqs.weight": _llama3_factors(32, base=500000.0, factor=8.0)},
    ),
    "qwen": _case(
        "qwen",
        "qwen",
        {
            "kv_channels": 16,
            "intermediate_size": 192,
            "use_dynamic_ntk": False,
            "use_logn_attn": False,
            "layer_norm_epsilon": 1e-6,
        },
    ),
    "chatglm": _case(
        "chatglm",
        "chatglm",
        {
            "num_layers": 3,
            "kv_channels": 16,
            "padded_vocab_size": 320,
            "ffn_hidden_size": 96,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "seq_length": 512,
            "layernorm_epsilon": 1e-6,
            "add_qkv_bias": True,
        },
        metadata={"rope.dimension_count": 8},
    ),
    "ministral3": _case(
        "ministral3",
        "mistral3",
        {
            "head_dim": 32,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 16,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.25,
            },
        },
        metadata={
            **_YARN,
            "rope.scaling.original_context_length": 16,
            "rope.scaling.yarn_log_multiplier": 1.0,
            "attention.temperature_scale": 0.25,
        },
    ),
    "llama4": _case(
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
    "smollm3": _case("smollm3", "smollm3", {"num_hidden_layers": 5}, metadata={"rope.freq_base": 2000000.0}),
    "mixtral": _case(
        "mixtral",
        "llama",
        {"num_local_experts": 6, "sliding_window": None, "rope_theta": 10000.0},
        metadata=_EXPERTS,
    ),
    "qwen2_moe": _case(
        "qwen2_moe",
        "qwen2moe",
        {
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 64,
        },
        metadata={**_EXPERTS, "expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 64},
    ),
    "qwen3_moe": _case(
        "qwen3_moe",
        "qwen3moe",
        {
            "head_dim": 32,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "norm_topk_prob": True,
        },
        metadata={**_EXPERTS, "expert_feed_forward_length": 32},
    ),
    "qwen3_next": _case(
        "qwen3_next",
        "qwen3next",
        {**_HYBRID, **_HYBRID_EXPERTS},
        metadata={**_HYBRID_METADATA, **_HYBRID_EXPERTS_METADATA},
    ),
    "qwen3_5": _case("qwen3_5_text", "qwen35", _HYBRID, metadata={**_HYBRID_METADATA, **_SECTIONS}, in_ci=True),
    # The file says which layers are recurrent, and has one behind them that is not the model's.
    "qwen3_5-predicting": _case(
        "qwen3_5_text",
        "qwen35",
        {
            **_HYBRID,
            "layer_types": ["linear_attention", _FULL, "linear_attention", "linear_attention"],
            "mtp_num_hidden_layers": 1,
        },
        metadata={
            **_HYBRID_METADATA,
            **_SECTIONS,
            "block_count": 5,
            "nextn_predict_layers": 1,
            "attention.recurrent_layers": [True, False, True, True, False],
        },
        tensors=_predicting_layer(4),
    ),
    "qwen3_5_moe": _case(
        "qwen3_5_moe_text",
        "qwen35moe",
        {**_HYBRID, **_HYBRID_EXPERTS, "linear_num_key_heads": 3, "intermediate_size": 512},
        metadata={
            **_HYBRID_METADATA,
            **_HYBRID_EXPERTS_METADATA,
            **_SECTIONS,
            "ssm.group_count": 3,
            "feed_forward_length": None,
        },
    ),
    "qwen3_5_moe-fused": _case(
        "qwen3_5_moe_text",
        "qwen35moe",
        {**_HYBRID, **_HYBRID_EXPERTS, "intermediate_size": 512},
        metadata={**_HYBRID_METADATA, **_HYBRID_EXPERTS_METADATA, **_SECTIONS, "feed_forward_length": None},
        fused_experts=True,
    ),
    "olmoe": _case(
        "olmoe",
        "olmoe",
        {**_ALL_HEADS, "num_experts": 6, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5},
        metadata=_EXPERTS,
    ),
    "granitemoe": _case(
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
            **_EXPERTS,
            "attention.scale": 0.2,
            "embedding_scale": 3.0,
            "residual_scale": 0.5,
            "logit_scale": 2.0,
        },
    ),
    "granitemoeshared": _case(
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
            **_EXPERTS,
            "attention.scale": 0.2,
            "residual_scale": 0.5,
            "logit_scale": 2.0,
            "expert_shared_feed_forward_length": 64,
        },
    ),
    "granitemoehybrid": _case(
        "granitemoehybrid",
        "granitehybrid",
        {**_GRANITE_4, "num_local_experts": 6, "shared_intermediate_size": 64},
        metadata={**_GRANITE_4_METADATA, **_EXPERTS, "expert_shared_feed_forward_length": 64},
    ),
    "granitemoehybrid-dense": _case(
        "granitemoehybrid",
        "granitehybrid",
        {**_GRANITE_4, "num_local_experts": 0, "shared_intermediate_size": 96, "position_embedding_type": "rope"},
        metadata={**_GRANITE_4_METADATA, "rope.scaling.finetuned": True},
        in_ci=True,
    ),
    "deepseek": _case(
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
            **_EXPERTS,
            "expert_feed_forward_length": 32,
            "expert_shared_count": 2,
            "leading_dense_block_count": 1,
            "expert_weights_scale": 1.0,
        },
    ),
    "deepseek_v2": _case(
        "deepseek_v2",
        "deepseek2",
        {**_LATENT, "topk_method": "greedy", "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.5}
        | {"rope_scaling": _GROWING},
        metadata={
            **_LATENT_METADATA,
            **_YARN,
            "rope.scaling.yarn_log_multiplier": 0.07,
            "expert_weights_scale": 1.5,
            "expert_gating_func": 1,
        },
    ),
    "deepseek_v3": _case(
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
    "deepseek_v3-groups": _case(
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
    "minicpm3": _case(
        "minicpm3",
        "minicpm3",
        {
            **_ALL_HEADS,
            "kv_lora_rank": 32,
            "q_lora_rank": 24,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 16,
            "v_head_dim": 16,
            "rope_scaling": {**_longrope(512)["rope_scaling"], "attention_factor": 1.0},
            "original_max_position_embeddings": 512,
        },
        metadata={
            "attention.q_lora_rank": 24,
            "attention.kv_lora_rank": 32,
            "attention.value_length": 16,
            "rope.dimension_count": 16,
        },
        tensors=_FACTOR_TENSORS,
    ),
    "mamba2": GGUFCase(
        architecture="mamba2",
        config={
            "model_type": "mamba2",
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_heads": 8,
            "head_dim": 16,
            "state_size": 24,
            "n_groups": 2,
            "vocab_size": 320,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        metadata={
            "ssm.conv_kernel": 4,
            "ssm.inner_size": 128,
            "ssm.state_size": 24,
            "ssm.time_step_rank": 8,
            "ssm.group_count": 2,
        },
        in_ci=True,
    ),
    "phimoe": _case(
        "phimoe",
        "phimoe",
        {"num_local_experts": 6, "attention_bias": True, "lm_head_bias": True, "rms_norm_eps": 1e-5}
        | {"rope_theta": 10000.0},
        metadata=_EXPERTS,
        bound=None,
        reason="its norms do not subtract the mean, and its router is a softmax",
    ),
    "gpt_oss": _case(
        "gpt_oss",
        "gpt-oss",
        _GPT_OSS,
        metadata=_GPT_OSS_METADATA,
        in_ci=True,
    ),
    "gpt_oss-mxfp4": _case(
        "gpt_oss",
        "gpt-oss",
        _GPT_OSS,
        metadata=_GPT_OSS_METADATA,
        kind="MXFP4",
        stored_so=r".*_exps\.weight",
    ),
    # YaRN's blend ends at a whole pair, so that rounding its ends, as llama.cpp does, changes nothing.
    "gpt_oss-yarn": _case(
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
        metadata=_GPT_OSS_METADATA | _YARN | {"rope.freq_base": 172240.0},
    ),
    **{
        f"llama-{kind.lower()}": _case(
            "llama",
            "llama",
            {"hidden_size": 256, "intermediate_size": 256, "attention_bias": False, "mlp_bias": False},
            kind=kind,
        )
        for kind in ("Q4_K", "Q5_K", "Q6_K", "Q8_0")
    },
    **{
        f"{name}-{kind.lower()}": _case(
            model_type,
            architecture,
            config,
            metadata=metadata,
            kind=kind,
            stored_so=_MATRICES_OF_HYBRIDS,
        )
        for name, model_type, architecture, config, metadata in (
            (
                "granitemoehybrid",
                "granitemoehybrid",
                "granitehybrid",
                {**_GRANITE_4, "num_local_experts": 6, "shared_intermediate_size": 64},
                {**_GRANITE_4_METADATA, **_EXPERTS, "expert_shared_feed_forward_length": 64},
            ),
            ("qwen3_5", "qwen3_5_text", "qwen35", _HYBRID, {**_HYBRID_METADATA, **_SECTIONS}),
            (
                "qwen3_5_moe",
                "qwen3_5_moe_text",
                "qwen35moe",
                {**_HYBRID, **_HYBRID_EXPERTS, "intermediate_size": 512},
                {**_HYBRID_METADATA, **_HYBRID_EXPERTS_METADATA, **_SECTIONS, "feed_forward_length": None},
            ),
        )
        for kind in ("Q4_0", "Q8_0")
    },
}


def file_of(path: Path, case: GGUFCase, *, seed: int = 0, chat_template: str = "", restored: bool = False) -> Path:
    """The file of a case, with random numbers; `restored`: with those that its blocks stand for, in float32."""
    import gguf

    writer = gguf.GGUFWriter(path, case.architecture)
    kinds = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    for key, value in {**_shared_metadata(case), **case.metadata}.items():
        if value is not None:
            kinds[type(value)](f"{case.architecture}.{key}", value)
    letters = ["<pad>", "<s>", "</s>", *byte_level_letters(), "ab"]
    tokens = letters + [f"<unused{number}>" for number in range(case.config["vocab_size"] - len(letters))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(tokens) - 3))
    writer.add_token_merges(["a b"])
    for number, add in enumerate((writer.add_pad_token_id, writer.add_bos_token_id, writer.add_eos_token_id)):
        add(number)
    if chat_template:
        writer.add_chat_template(chat_template)
    random = np.random.default_rng(seed)
    gates: dict[str, Array] = {}
    for layout in _layouts(case):
        numbers = _numbers(case, layout, random)
        if case.fused_experts and "ffn_gate_exps" in layout.name:
            gates[layout.name] = numbers
        elif case.fused_experts and "ffn_up_exps" in layout.name:
            gate = gates.pop(layout.name.replace("ffn_up", "ffn_gate"))
            writer.add_tensor(layout.name.replace("ffn_up", "ffn_gate_up"), np.concatenate([gate, numbers], axis=1))
        elif case.kind == "F32" or numbers.ndim == 1 or not re.fullmatch(case.stored_so, layout.name):
            writer.add_tensor(layout.name, numbers)
        else:
            own = (kind for pattern, kind in case.others.items() if re.fullmatch(pattern, layout.name))
            kind = gguf.GGMLQuantizationType[next(own, case.kind)]
            elements, size = gguf.GGML_QUANT_SIZES[kind]
            stored = quantized(numbers, kind.value, block_elements=elements, block_bytes=size)
            if restored:
                meant = dequantized(kind.name.lower().replace("_k", "_K"), stored.tobytes(), numbers.size)
                writer.add_tensor(layout.name, meant.reshape(numbers.shape))
            else:
                writer.add_tensor(layout.name, stored, raw_dtype=kind)
    for name, numbers in case.tensors.items():
        writer.add_tensor(name, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _shared_metadata(case: GGUFCase) -> dict[str, Any]:
    configuration: Any = model_of(case.config).configuration
    if "attention" not in configuration:
        return {
            "block_count": configuration["num_layers"],
            "context_length": 1 << 20,
            "embedding_length": configuration["hidden_size"],
            "feed_forward_length": 0,
            "attention.head_count": 0,
            "attention.layer_norm_rms_epsilon": configuration["norm"]["epsilon"],
        }
    attention, feed_forward = configuration["attention"], configuration["feed_forward"]
    epsilon = (
        {}
        if _LAYER_NORM.keys() <= case.metadata.keys()
        else {"attention.layer_norm_rms_epsilon": configuration["norm"]["epsilon"]}
    )
    return {
        "block_count": configuration["num_layers"],
        "context_length": 512,
        "embedding_length": configuration["hidden_size"],
        "feed_forward_length": case.config.get("intermediate_size", feed_forward["intermediate_size"]),
        "attention.head_count": attention["query_heads"],
        "attention.head_count_kv": attention["key_value_heads"],
        "attention.key_length": attention["head_dim"],
        "attention.value_length": attention["head_dim"],
        "rope.dimension_count": attention["head_dim"],
        "rope.freq_base": 10000.0,
        **epsilon,
    }


def _layouts(case: GGUFCase) -> Iterator[TensorLayout]:
    """The tensors of the file, each once."""
    seen = set()
    for parameter in parameters_of(case.config).parameters:
        for source in parameter.sources:
            assert source.gguf is not None, source.name
            for layout in source.gguf.tensors if isinstance(source.gguf, JoinedLayout) else (source.gguf,):
                if layout.name not in seen:
                    seen.add(layout.name)
                    yield layout


def _numbers(case: GGUFCase, layout: TensorLayout, random: np.random.Generator) -> Array:
    numbers = random.standard_normal(layout.shape).astype(np.float32)
    if "norm" in layout.name and layout.name.endswith(".weight"):
        made: Array = 1 + numbers / 10
        return made.astype(np.float16).astype(np.float32) if case.half_norms else made
    if layout.name.endswith(".bias"):
        return numbers / 10
    if layout.name.endswith(".ssm_a"):
        return -np.exp(numbers)
    return numbers if len(layout.shape) == 1 else numbers / np.float32(layout.shape[-1] ** 0.5)
