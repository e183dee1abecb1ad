"""Small models of every family of decoders, each with its reference in transformers.

A family whose class transformers does not have is compared with a model that computes the same by other names: a case
says which, and how that model's tensors become a checkpoint of the family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.compiler.tiny_models import Array

Tensors = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class FamilyCase:
    """`config` is the `config.json`, `overrides` are a library's. `reference` are the fields of a configuration of
    transformers, where it is another one; `checkpoint` makes the family's tensors of its. `in_ci` says whether CI runs
    it, and not only exhaustive tests."""

    config: Mapping[str, Any]
    reference: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: Callable[[Tensors], Tensors] = dict
    overrides: Mapping[str, int] = field(default_factory=dict)
    in_ci: bool = False

    @property
    def model(self) -> dict[str, Any]:
        """The configuration of the reference."""
        return dict(self.reference or self.config)


_SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 512,
}
_ALL_HEADS = {"num_key_value_heads": 4}
_GPT: dict[str, Any] = {
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 3,
    "n_positions": 512,
    "vocab_size": 320,
}
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
_HYBRID = _SIZES | {
    "num_hidden_layers": 5,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
}
_HYBRID_EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 32,
}
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _case(model_type: str, /, *, in_ci: bool = False, sizes: Mapping[str, Any] = _SIZES, **fields: Any) -> FamilyCase:
    return FamilyCase(config={**sizes, **_SPECIAL, "model_type": model_type, **fields}, in_ci=in_ci)


def _as(
    reference: str,
    model_type: str,
    /,
    *,
    checkpoint: Callable[[Tensors], Tensors] = dict,
    given: Mapping[str, Any],
    **own: Any,
) -> FamilyCase:
    """A family whose reference is a model of another type; both have the fields `given`, and each its own."""
    fields = {**_SIZES, **_SPECIAL, **given}
    theirs = own.pop("theirs", {})
    return FamilyCase(
        config={**fields, "model_type": model_type, **own},
        reference={**fields, "model_type": reference, **theirs},
        checkpoint=checkpoint,
    )


def _renamed(**names: str) -> Callable[[Tensors], Tensors]:
    def checkpoint(tensors: Tensors) -> Tensors:
        found = {}
        for name, tensor in tensors.items():
            for old, new in names.items():
                name = name.replace(old, new)
            found[name] = tensor
        return found

    return checkpoint


def _internlm2(tensors: Tensors) -> Tensors:
    """Queries, keys and values by key-value heads, and its own names."""
    names = {
        "model.embed_tokens": "model.tok_embeddings",
        "lm_head": "output",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attention.wo",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2",
    }
    found = dict(_renamed(**names)(tensors))
    for layer in range(3):
        prefix = f"model.layers.{layer}"
        q, k, v = (found.pop(f"{prefix}.self_attn.{part}_proj.weight").reshape(2, -1, 16, 64) for part in "qkv")
        found[f"{prefix}.attention.wqkv.weight"] = np.concatenate([q, k, v], axis=1).reshape(-1, 64)
    return found


def _packed(tensors: Tensors) -> Tensors:
    """Baichuan's `W_pack`."""
    found = dict(tensors)
    for layer in range(3):
        prefix = f"model.layers.{layer}.self_attn"
        found[f"{prefix}.W_pack.weight"] = np.concatenate([found.pop(f"{prefix}.{part}_proj.weight") for part in "qkv"])
    return found


def _half_turned(**more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, **more}}


_YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "rope_theta": 10000.0,
}

_LATENT: dict[str, Any] = {
    **_SIZES,
    **_ALL_HEADS,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 24,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}
_SCALES = {"mscale": 0.7, "mscale_all_dim": 0.9}

_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5],
    "long_factor": [1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0],
}

CASES: Mapping[str, FamilyCase] = {
    "llama": _case("llama", rms_norm_eps=1e-5),
    "qwen2-yarn": _case("qwen2", rope_parameters=_YARN),
    "qwen3": _case("qwen3", head_dim=32, in_ci=True),
    "gemma": _case("gemma", head_dim=32),
    "phi3": _case("phi3"),
    "phi3-partial": _case("phi3", sliding_window=None, **_half_turned()),
    # Both texts are longer than 16 tokens; with 64, both are shorter, and so is the library's context.
    "phi3-longrope": _case("phi3", rope_parameters=_LONGROPE, original_max_position_embeddings=16),
    "phi3-longrope-short": FamilyCase(
        config={
            **_SIZES,
            **_SPECIAL,
            "model_type": "phi3",
            "rope_parameters": _LONGROPE,
            "original_max_position_embeddings": 64,
        },
        overrides={"context_window_size": 64},
    ),
    "phi": _case("phi", sizes=_SIZES | _ALL_HEADS),
    "phi-norms": _case("phi", qk_layernorm=True),
    "gpt_neox": _case("gpt_neox", in_ci=True),
    "gpt_neox-sequential": _case("gpt_neox", use_parallel_residual=False, rotary_pct=1.0),
    "gptj": _case("gptj", sizes=_GPT, rotary_dim=8),
    "gpt2": _case("gpt2", sizes=_GPT, in_ci=True),
    "gpt_bigcode": _case("gpt_bigcode", sizes=_GPT),
    "gpt_bigcode-many": _case("gpt_bigcode", sizes=_GPT, multi_query=False),
    "starcoder2": _case("starcoder2"),
    "stablelm": _case("stablelm", use_qkv_bias=True),
    "stablelm-parallel": _case("stablelm", use_parallel_residual=True, qk_layernorm=True),
    "cohere": _case("cohere"),
    "cohere-norms": _case("cohere", use_qk_norm=True, logit_scale=0.5),
    "olmo": _case("olmo"),
    "olmo-clipped": _case("olmo", clip_qkv=0.5),
    "olmo2": _case("olmo2"),
    "granite": _case(
        "granite",
        embedding_multiplier=12.0,
        residual_multiplier=0.22,
        attention_multiplier=0.1,
        logits_scaling=8.0,
    ),
    "nemotron": _case("nemotron"),
    "glm": _case("glm", head_dim=32),
    "glm4": _case("glm4", head_dim=32),
    "internlm": _as("llama", "internlm", given=_ALL_HEADS, bias=False),
    "internlm2": _as("llama", "internlm2", given={}, checkpoint=_internlm2, bias=False),
    "internlm3": _as("llama", "internlm3", given={"head_dim": 16, "rms_norm_eps": 1e-5}),
    "baichuan": _as("llama", "baichuan", given=_ALL_HEADS, checkpoint=_packed),
    "orion": _as(
        "stablelm",
        "orion",
        given={},
        theirs={
            "layer_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
        },
    ),
    "minicpm": _as(
        "granite",
        "minicpm",
        given={"tie_word_embeddings": False},
        scale_emb=12,
        scale_depth=1.4,
        dim_model_base=16,
        theirs={
            "embedding_multiplier": 12.0,
            "residual_multiplier": 1.4 / 3**0.5,
            "attention_multiplier": 0.25,
            "logits_scaling": 4.0,
        },
    ),
    "deepseek_v2": _case("deepseek_v2", sizes=_LATENT, q_lora_rank=None, rope_parameters=_YARN | _SCALES),
    "deepseek_v2-groups": _case(
        "deepseek_v2",
        sizes=_LATENT,
        q_lora_rank=24,
        topk_method="group_limited_greedy",
        n_group=4,
        topk_group=2,
        routed_scaling_factor=1.5,
        attention_bias=True,
    ),
    "deepseek_v3": _case(
        "deepseek_v3",
        sizes=_LATENT | {"num_hidden_layers": 4},  # one of which is not exported
        in_ci=True,
        q_lora_rank=24,
        n_group=4,
        topk_group=2,
        n_shared_experts=2,
        rope_parameters=_YARN | _SCALES,
    ),
    "deepseek_v3-halves": _case(
        "deepseek_v3", sizes=_LATENT, q_lora_rank=None, n_group=2, topk_group=1, rope_interleave=False
    ),
    "minicpm3": _case(
        "minicpm3",
        sizes=_SIZES | _ALL_HEADS,
        kv_lora_rank=32,
        q_lora_rank=24,
        qk_nope_head_dim=16,
        qk_rope_head_dim=16,
        dim_model_base=16,
        rope_parameters=_LONGROPE,
        original_max_position_embeddings=16,
    ),
    "bert": _case("bert", in_ci=True),
    "roberta": _case("roberta", pad_token_id=1, type_vocab_size=1, hidden_act="gelu_new"),
    "xlm-roberta": _case("xlm-roberta"),
    "exaone4": _case("exaone4", sliding_window=None, layer_types=["full_attention"] * 3),
    "smollm3": _case("smollm3", sizes=_SIZES | {"num_hidden_layers": 5}),
    "mamba2": _case("mamba2", sizes=_MAMBA, time_step_limit=[0.0, 0.8], in_ci=True),
    "mamba2-biases": _case("mamba2", sizes=_MAMBA, use_bias=True, use_conv_bias=False, tie_word_embeddings=True),
    "qwen3_next": _case("qwen3_next", sizes=_HYBRID | _HYBRID_EXPERTS),
    "qwen3_5": _case("qwen3_5_text", sizes=_HYBRID, in_ci=True),
    "qwen3_5_moe": _case("qwen3_5_moe_text", sizes=_HYBRID | _HYBRID_EXPERTS),
}
