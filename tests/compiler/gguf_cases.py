"""Small models of every architecture of GGUF files that a family reads, which llama.cpp loads too.

A file has random numbers by the names and in the shapes that the family reads, and metadata as llama.cpp's converter
writes them. So llama.cpp and a library that is built from the file compute the same only if both understand it alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.compiler.gguf_case import (
    ALL_HEADS,
    FACTOR_TENSORS,
    GELU,
    LAYER_NORM,
    TURNED_IN_WINDOW,
    WINDOW,
    YARN,
    GGUFCase,
    case_of,
    llama3_factors,
    longrope,
    longrope_metadata,
)
from tests.compiler.gguf_mixture_cases import MIXTURES
from tests.compiler.gguf_recurrent_cases import RECURRENT

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
_TURNED_HALF = {"rope.dimension_count": 8}
_FULL, _SLIDING = "full_attention", "sliding_attention"

CASES: Mapping[str, GGUFCase] = {
    "llama": case_of("llama", "llama", {"attention_bias": False, "mlp_bias": False}),
    "llama3": case_of(
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
        tensors={"rope_freqs.weight": llama3_factors(32, base=500000.0, factor=8.0)},
    ),
    "qwen2": case_of("qwen2", "qwen2"),
    "qwen2-yarn": case_of(
        "qwen2",
        "qwen2",
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}},
        metadata=YARN,
    ),
    "qwen3": case_of("qwen3", "qwen3", {"head_dim": 32}),
    "gemma": case_of("gemma", "gemma", {"head_dim": 32}, bound=GELU),
    "gemma2": case_of(
        "gemma2",
        "gemma2",
        {
            **WINDOW,
            "query_pre_attn_scalar": 32,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
        metadata={**TURNED_IN_WINDOW, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
        bound=GELU,
    ),
    "gemma3": case_of(
        "gemma3_text",
        "gemma3",
        {
            **WINDOW,
            "num_hidden_layers": 7,
            "query_pre_attn_scalar": 32,
            "rope_theta": 1e6,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "rope_local_base_freq": 10000.0,
        },
        metadata={
            **TURNED_IN_WINDOW,
            "rope.freq_base": 1e6,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
        bound=GELU,
    ),
    "phi3": case_of(
        "phi3",
        "phi3",
        {"rms_norm_eps": 1e-5},
        metadata={"attention.sliding_window": 0, "rope.scaling.original_context_length": 4096},
    ),
    # The text, and both contexts, are longer than 16 tokens, and no longer than 256.
    "phi3-longrope": case_of("phi3", "phi3", longrope(16), metadata=longrope_metadata(16), tensors=FACTOR_TENSORS),
    "phi3-longrope-short": case_of(
        "phi3",
        "phi3",
        longrope(256),
        metadata=longrope_metadata(256),
        tensors=FACTOR_TENSORS,
        overrides={"context_window_size": 256},
    ),
    "phi": case_of("phi", "phi2", ALL_HEADS, metadata={**LAYER_NORM, **_TURNED_HALF}, bound=GELU),
    "gpt_neox": case_of(
        "gpt_neox",
        "gptneox",
        {"num_key_value_heads": 4},
        metadata={**LAYER_NORM, "use_parallel_residual": True, "rope.dimension_count": 4},
        bound=GELU,
    ),
    "gpt2": GGUFCase(architecture="gpt2", config={**_GPT, "model_type": "gpt2"}, metadata=LAYER_NORM, bound=GELU),
    "gpt_bigcode": GGUFCase(
        architecture="starcoder",
        config={**_GPT, "model_type": "gpt_bigcode"},
        metadata={**LAYER_NORM, "attention.head_count_kv": 1},
        bound=GELU,
    ),
    "starcoder2": case_of("starcoder2", "starcoder2", metadata=LAYER_NORM, bound=GELU),
    "stablelm": case_of(
        "stablelm",
        "stablelm",
        {"use_qkv_bias": True},
        metadata={**LAYER_NORM, "use_parallel_residual": False, "rope.dimension_count": 4},
    ),
    "cohere": case_of(
        "cohere",
        "command-r",
        metadata={**LAYER_NORM, "logit_scale": 0.0625, "rope.freq_base": 500000.0},
    ),
    "cohere2": case_of(
        "cohere2",
        "cohere2",
        {"sliding_window": 16, "num_hidden_layers": 4, "logit_scale": 0.25},
        metadata={**LAYER_NORM, **TURNED_IN_WINDOW, "logit_scale": 0.25, "rope.scaling.type": "none"},
    ),
    "olmo": case_of("olmo", "olmo", metadata=LAYER_NORM),
    "olmo-clipped": case_of("olmo", "olmo", {"clip_qkv": 0.5}, metadata={**LAYER_NORM, "attention.clamp_kqv": 0.5}),
    "olmo2": case_of("olmo2", "olmo2"),
    "olmo3": case_of(
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
            **YARN,
            **TURNED_IN_WINDOW,
            "rope.freq_base": 5e5,
            "attention.sliding_window_pattern": [True, True, True, False],
        },
    ),
    "granite": case_of(
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
    "nemotron": case_of("nemotron", "nemotron", metadata={**LAYER_NORM, **_TURNED_HALF}),
    "glm": case_of("glm", "chatglm", {"head_dim": 16}, metadata={"rope.dimension_count": 8}),
    "glm4": case_of("glm4", "glm4", {"head_dim": 32}, metadata={"rope.dimension_count": 16}),
    "internlm2": case_of("internlm2", "internlm2", {"bias": False}),
    "baichuan": case_of("baichuan", "baichuan", {**ALL_HEADS, "num_hidden_layers": 32}),
    "baichuan-alibi": case_of(
        "baichuan",
        "baichuan",
        {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 6, "num_hidden_layers": 40},
    ),
    "orion": case_of("orion", "orion", {"rms_norm_eps": 1e-5}, metadata=LAYER_NORM),
    "minicpm": case_of(
        "minicpm",
        "minicpm",
        {"tie_word_embeddings": False, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 16},
        metadata={"embedding_scale": 12.0, "residual_scale": 1.4 / 3**0.5, "logit_scale": 4.0},
    ),
    "exaone4": case_of("exaone4", "exaone4", {"sliding_window": None}),
    "exaone4-windows": case_of(
        "exaone4",
        "exaone4",
        {"sliding_window": 16, "num_hidden_layers": 64},
        metadata={**TURNED_IN_WINDOW, "attention.sliding_window_pattern": [True, True, True, False] * 16},
    ),
    "exaone": case_of(
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
        tensors={"rope_freqs.weight": llama3_factors(32, base=500000.0, factor=8.0)},
    ),
    "qwen": case_of(
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
    "chatglm": case_of(
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
    "ministral3": case_of(
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
            **YARN,
            "rope.scaling.original_context_length": 16,
            "rope.scaling.yarn_log_multiplier": 1.0,
            "attention.temperature_scale": 0.25,
        },
    ),
    "smollm3": case_of("smollm3", "smollm3", {"num_hidden_layers": 5}, metadata={"rope.freq_base": 2000000.0}),
    **{
        f"llama-{kind.lower()}": case_of(
            "llama",
            "llama",
            {"hidden_size": 256, "intermediate_size": 256, "attention_bias": False, "mlp_bias": False},
            kind=kind,
        )
        for kind in ("Q4_K", "Q5_K", "Q6_K", "Q8_0")
    },
    **MIXTURES,
    **RECURRENT,
}
