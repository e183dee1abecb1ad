"""Small models of the families of decoders and encoders, each with its reference in transformers.

A family whose class transformers does not have is compared with a model that computes the same by other names: a case
says which, and how that model's tensors become a checkpoint of the family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.compiler import alibi
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
_ALIBI: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "vocab_size": 320,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
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
_GRANITE_4: dict[str, Any] = {
    **_SIZES,
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
_GEMMA3: dict[str, Any] = {
    **_SIZES,
    "model_type": "gemma3_text",
    "num_hidden_layers": 4,
    "head_dim": 32,
    "sliding_window": 16,
    "sliding_window_pattern": 2,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
_MISTRAL: dict[str, Any] = {**_SIZES, "model_type": "mistral", "head_dim": 32, "sliding_window": None}
_HYBRID_EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 32,
}
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _case(
    model_type: str,
    /,
    *,
    in_ci: bool = False,
    sizes: Mapping[str, Any] = _SIZES,
    overrides: Mapping[str, int] | None = None,
    **fields: Any,
) -> FamilyCase:
    config = {**sizes, **_SPECIAL, "model_type": model_type, **fields}
    return FamilyCase(config=config, overrides=overrides or {}, in_ci=in_ci)


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


def _packed(name: str, *, by_head: int = 0, **names: str) -> Callable[[Tensors], Tensors]:
    """Queries, keys and values as one tensor of a `name`; by heads of a size, if they are. Then names are changed."""

    def checkpoint(tensors: Tensors) -> Tensors:
        found = dict(tensors)
        for kind in [each for each in tensors if ".self_attn.q_proj." in each]:
            parts = [found.pop(kind.replace("q_proj", f"{part}_proj")) for part in "qkv"]
            if by_head:
                heads = [part.reshape(-1, by_head, *part.shape[1:]) for part in parts]
                packed = np.stack(heads, axis=1).reshape(-1, *parts[0].shape[1:])
            else:
                packed = np.concatenate(parts)
            found[kind.replace("self_attn.q_proj", name)] = packed
        return _renamed(**names)(found)

    return checkpoint


def _experts_apart(tensors: Tensors) -> Tensors:
    """A matrix for each expert, w1 and w3 for gate and up, of one with both of all."""
    found: dict[str, Array] = {}
    for name, tensor in tensors.items():
        layer, _, part = name.partition(".block_sparse_moe.")
        if not part:
            found[name] = tensor
        elif tensor.ndim == 2:
            found[f"{layer}.mlp.gate.weight"] = tensor
        for number, expert in enumerate(tensor if part and tensor.ndim == 3 else ()):
            own = f"{layer}.mlp.experts.{number}"
            if "gate_up" in part or "input" in part:
                found[f"{own}.w1.weight"], found[f"{own}.w3.weight"] = np.split(expert, 2)
            else:
                found[f"{own}.w2.weight"] = expert
    return found


_EXAONE = {
    "self_attn.o_proj": "attn.attention.out_proj",
    "self_attn": "attn.attention",
    "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2",
    "mlp.gate_proj": "mlp.c_fc_0",
    "mlp.up_proj": "mlp.c_fc_1",
    "mlp.down_proj": "mlp.c_proj",
    "model.embed_tokens": "transformer.wte",
    "model.layers": "transformer.h",
    "model.norm": "transformer.ln_f",
}
_QWEN_NAMES: dict[str, Any] = {
    "self_attn.o_proj": "attn.c_proj",
    "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2",
    "mlp.gate_proj": "mlp.w2",
    "mlp.up_proj": "mlp.w1",
    "mlp.down_proj": "mlp.c_proj",
    "model.embed_tokens": "transformer.wte",
    "model.layers": "transformer.h",
    "model.norm": "transformer.ln_f",
}
_CHATGLM_NAMES: dict[str, Any] = {
    "self_attn.o_proj": "self_attention.dense",
    "mlp.gate_up_proj": "mlp.dense_h_to_4h",
    "mlp.down_proj": "mlp.dense_4h_to_h",
    "model.embed_tokens": "transformer.embedding.word_embeddings",
    "model.layers": "transformer.encoder.layers",
    "model.norm": "transformer.encoder.final_layernorm",
    "lm_head": "transformer.output_layer",
}
_PHI_NAMES: dict[str, Any] = {
    "self_attn.dense": "mixer.out_proj",
    "input_layernorm": "ln",
    "model.embed_tokens": "transformer.embd.wte",
    "model.layers": "transformer.h",
    "lm_head": "lm_head.linear",
    "model.final_layernorm": "lm_head.ln",
}


def _mixformer(tensors: Tensors) -> Tensors:
    """Embedding, layers and head by their numbers."""
    found = {}
    for name, tensor in _packed("mixer.Wqkv", **_PHI_NAMES)(tensors).items():
        _, _, part = name.partition("transformer.h.")
        number, _, rest = part.partition(".")
        begins = {"transformer.embd": "layers.0", "lm_head": "layers.4"}
        for old, new in begins.items():
            name = new + name.removeprefix(old) if name.startswith(old) else name
        found[f"layers.{int(number) + 1}.{rest}" if rest else name] = tensor
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
_KIMI: dict[str, Any] = {
    **_LATENT,
    **_SPECIAL,
    "q_lora_rank": 32,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.827,
    "num_nextn_predict_layers": 0,
}
_SCALES = {"mscale": 0.7, "mscale_all_dim": 0.9}

_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5],
    "long_factor": [1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0],
}

_CHATGLM: dict[str, Any] = {
    "num_layers": 3,
    "padded_vocab_size": 320,
    "kv_channels": 16,
    "ffn_hidden_size": 96,
    "seq_length": 512,
    "add_qkv_bias": True,
    "rope_ratio": 5.0,
}
# The first three layers see a chunk, the second and the last have experts.
_LLAMA4: dict[str, Any] = {
    **_SIZES,
    **_SPECIAL,
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

CASES: dict[str, FamilyCase] = {
    "llama": _case("llama", rms_norm_eps=1e-5),
    "llama-dynamic": _case("llama", rope_scaling={"type": "dynamic", "factor": 4.0}),
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
    "olmoe-clipped": _case("olmoe", sizes=_SIZES | _ALL_HEADS, num_experts=6, num_experts_per_tok=2, clip_qkv=0.7),
    "granite": _case(
        "granite",
        embedding_multiplier=12.0,
        residual_multiplier=0.22,
        attention_multiplier=0.1,
        logits_scaling=8.0,
    ),
    "granitemoe": _case(
        "granitemoe",
        num_local_experts=6,
        num_experts_per_tok=2,
        embedding_multiplier=3.0,
        residual_multiplier=0.5,
        attention_multiplier=0.2,
        logits_scaling=2.0,
    ),
    "granitemoeshared": _case(
        "granitemoeshared",
        num_local_experts=6,
        num_experts_per_tok=2,
        shared_intermediate_size=64,
        residual_multiplier=0.5,
        attention_multiplier=0.2,
    ),
    "granitemoehybrid": _case("granitemoehybrid", sizes=_GRANITE_4, num_local_experts=6),
    "granitemoehybrid-dense": _case(
        "granitemoehybrid", sizes=_GRANITE_4, num_local_experts=0, position_embedding_type="rope"
    ),
    "granitemoehybrid-attention": _case(
        "granitemoehybrid",
        num_local_experts=0,
        shared_intermediate_size=96,
        position_embedding_type="rope",
        layer_types=["attention", "attention", "attention"],
    ),
    "nemotron": _case("nemotron"),
    "glm": _case("glm", head_dim=32),
    "glm4": _case("glm4", head_dim=32),
    "internlm": _as("llama", "internlm", given=_ALL_HEADS, bias=False),
    "internlm-rotary": _as(
        "llama",
        "internlm",
        given=_ALL_HEADS,
        bias=False,
        rotary={"type": "dynamic", "base": 2000, "scaling_factor": 2.0},
        theirs={"rope_theta": 2000.0},
    ),
    "internlm2": _as("llama", "internlm2", given={}, checkpoint=_internlm2, bias=False),
    "internlm3": _as("llama", "internlm3", given={"head_dim": 16, "rms_norm_eps": 1e-5}),
    "baichuan": _as("llama", "baichuan", given=_ALL_HEADS, checkpoint=_packed("self_attn.W_pack")),
    "baichuan-alibi": FamilyCase(
        config={**_ALIBI, "model_type": "baichuan", "model_max_length": 512},
        reference={  # a SmolLM3 none of whose layers rotate
            **_ALIBI,
            "model_type": "smollm3",
            "num_key_value_heads": 6,
            "no_rope_layers": [0, 0],
            "tie_word_embeddings": False,
            "attn_implementation": alibi.NAME,
        },
        checkpoint=_packed("self_attn.W_pack"),
        in_ci=True,
    ),
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
    "kimi_k2": FamilyCase(config={**_KIMI, "model_type": "kimi_k2"}, reference={**_KIMI, "model_type": "deepseek_v3"}),
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
    "llama4": FamilyCase(
        config={"model_type": "llama4", "text_config": _LLAMA4 | {"interleave_moe_layer_step": 1}},
        reference=_LLAMA4 | {"interleave_moe_layer_step": 1},
        checkpoint=lambda tensors: {f"language_model.{name}": tensor for name, tensor in tensors.items()},
    ),
    "ministral3": _case(
        "ministral3",
        sizes=_SIZES | {"head_dim": 32},
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 16,
            "mscale": 1.0,
            "mscale_all_dim": 0.5,
            "llama_4_scaling_beta": 0.4,
        },
    ),
    "minicpm-moe": _as(
        "granitemoe",
        "minicpm",
        given={"tie_word_embeddings": False, "num_experts_per_tok": 2},
        checkpoint=_experts_apart,
        scale_emb=12,
        scale_depth=1.4,
        dim_model_base=16,
        num_experts=6,
        theirs={
            "num_local_experts": 6,
            "embedding_multiplier": 12.0,
            "residual_multiplier": 1.4 / 3**0.5,
            "attention_multiplier": 0.25,
            "logits_scaling": 4.0,
        },
    ),
    "exaone": FamilyCase(
        config={
            **{name: value for name, value in _SIZES.items() if name != "num_hidden_layers"},
            **_SPECIAL,
            "model_type": "exaone",
            "num_layers": 3,
            "layer_norm_epsilon": 1e-5,
            "activation_function": "silu",
        },
        checkpoint=_renamed(**_EXAONE),
    ),
    "exaone-3.5": FamilyCase(
        config={
            **{name: value for name, value in _SIZES.items() if name != "num_hidden_layers"},
            **_SPECIAL,
            "model_type": "exaone",
            "num_layers": 3,
            "layer_norm_epsilon": 1e-5,
            "activation_function": "silu",
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
            "tie_word_embeddings": True,
        },
        checkpoint=_renamed(**_EXAONE),
    ),
    "qwen": _as(
        "qwen2",
        "qwen",
        given=_ALL_HEADS,
        checkpoint=_packed("attn.c_attn", **_QWEN_NAMES),
        intermediate_size=192,
        kv_channels=16,
        seq_length=128,
        rotary_emb_base=20000,
        theirs={"rope_theta": 20000.0},
    ),
    "chatglm": _as(
        "glm",
        "chatglm",
        given={},
        checkpoint=_packed("self_attention.query_key_value", **_CHATGLM_NAMES),
        **_CHATGLM,
        multi_query_attention=True,
        multi_query_group_num=2,
        theirs={"head_dim": 16, "rms_norm_eps": 1e-5, **_half_turned(rope_theta=50000.0)},
    ),
    "chatglm-heads": _as(
        "glm",
        "chatglm",
        given=_ALL_HEADS,
        checkpoint=_packed("self_attention.query_key_value", by_head=16, **_CHATGLM_NAMES),
        **_CHATGLM,
        theirs={"head_dim": 16, "rms_norm_eps": 1e-5, **_half_turned(rope_theta=50000.0)},
    ),
    "phi-msft": _as(
        "phi",
        "phi-msft",
        given={},
        checkpoint=_packed("mixer.Wqkv", **_PHI_NAMES),
        **_GPT,
        n_inner=96,
        n_head_kv=2,
        rotary_dim=8,
    ),
    "mixformer-sequential": _as(
        "phi", "mixformer-sequential", given=_ALL_HEADS, checkpoint=_mixformer, **_GPT, n_inner=96, rotary_dim=8
    ),
    "exaone4": _case("exaone4", sliding_window=None, layer_types=["full_attention"] * 3),
    "smollm3": _case("smollm3", sizes=_SIZES | {"num_hidden_layers": 5}),
    "mamba2": _case("mamba2", sizes=_MAMBA, time_step_limit=[0.0, 0.8], in_ci=True),
    "mamba2-biases": _case("mamba2", sizes=_MAMBA, use_bias=True, use_conv_bias=False, tie_word_embeddings=True),
    "qwen3_next": _case("qwen3_next", sizes=_HYBRID | _HYBRID_EXPERTS),
    "qwen3_5": _case("qwen3_5_text", sizes=_HYBRID, in_ci=True),
    "qwen3_5_moe": _case("qwen3_5_moe_text", sizes=_HYBRID | _HYBRID_EXPERTS),
    "qwen3_5-vision": FamilyCase(
        config={"model_type": "qwen3_5", "text_config": _QWEN3_5, "tie_word_embeddings": False},
        reference=_QWEN3_5,
        checkpoint=lambda tensors: {
            name.replace("model.", "model.language_model.", 1): tensor for name, tensor in tensors.items()
        },
    ),
}

_WINDOWED: dict[str, Any] = {
    **_SIZES,
    **_SPECIAL,
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
    "gemma2": _case(
        "gemma2",
        sizes=_WINDOWED,
        query_pre_attn_scalar=24,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
        in_ci=True,
    ),
    "gemma3_text": _case(
        "gemma3_text",
        sizes=_WINDOWED | {"num_hidden_layers": 5},
        sliding_window_pattern=3,
        rope_theta=50000.0,
        query_pre_attn_scalar=24,
    ),
    "cohere2": _case("cohere2", sizes=_WINDOWED | {"head_dim": 16}),
    "olmo3": _case(
        "olmo3",
        sizes=_WINDOWED,
        rope_parameters={
            _FULL: {"rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0, "original_max_position_embeddings": 64},
            _SLIDING: {"rope_type": "default", "rope_theta": 5e5},
        },
    ),
    "ministral": _case("ministral", sizes=_WINDOWED, layer_types=[_FULL, _SLIDING, _SLIDING, _FULL]),
    "gpt_oss": _case(
        "gpt_oss",
        sizes=_WINDOWED | {"num_hidden_layers": 3},
        num_local_experts=6,
        num_experts_per_tok=2,
        swiglu_limit=1.0,
        rms_norm_eps=1e-5,
        in_ci=True,
    ),
    "llama4_text": FamilyCase(config=_LLAMA4, in_ci=True),
    "qwen2-window": _case("qwen2", sizes=_WINDOWED | _QWEN),
    "qwen2_moe-window": _case(
        "qwen2_moe",
        sizes=_WINDOWED | _QWEN | _EXPERTS,
        max_window_layers=3,
        shared_expert_intermediate_size=48,
        decoder_sparse_step=2,
    ),
    "qwen3-window": _case("qwen3", sizes=_WINDOWED | _QWEN),
    "qwen3_moe-window": _case(
        "qwen3_moe", sizes=_WINDOWED | _QWEN | _EXPERTS, norm_topk_prob=True, overrides=_LONG_PASSES
    ),
    "exaone4-window": _case("exaone4", sizes=_WINDOWED | {"head_dim": 16}, sliding_window_pattern=2),
    "phi3-window": _case("phi3", sizes=_WINDOWED | {"head_dim": 16}, overrides=_LONG_PASSES),
    "starcoder2-window": _case("starcoder2", sizes=_WINDOWED | {"head_dim": 16}, overrides=_LONG_PASSES),
    "mixtral-window": _case(
        "mixtral", sizes=_WINDOWED, num_local_experts=4, num_experts_per_tok=2, overrides=_LONG_PASSES
    ),
    "phimoe-window": _case(
        "phimoe",
        sizes=_WINDOWED | {"head_dim": 16},
        num_local_experts=4,
        num_experts_per_tok=2,
        overrides=_LONG_PASSES,
    ),
    "ministral3-window": _case("ministral3", sizes=_WINDOWED, overrides=_LONG_PASSES),
}
"""Models whose layers do not all see all of the text."""

TEXT_PARTS: dict[str, FamilyCase] = {
    # As published, and by the names of newer transformers.
    "gemma3": FamilyCase(
        config={"model_type": "gemma3", "text_config": _GEMMA3},
        reference=_GEMMA3,
        checkpoint=lambda tensors: {f"language_model.{name}": tensor for name, tensor in tensors.items()},
    ),
    "mistral3": FamilyCase(
        config={"model_type": "mistral3", "text_config": _MISTRAL},
        reference=_MISTRAL,
        checkpoint=lambda tensors: {
            name.replace("model.", "model.language_model.", 1): tensor for name, tensor in tensors.items()
        },
    ),
}
"""Text parts of vision-language models, each with the same model of texts alone, which is in the table."""
