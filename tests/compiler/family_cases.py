"""Small models of the families of decoders and encoders, each with its reference in transformers.

A family whose class transformers does not have is compared with a model that computes the same by other names: a case
says which, and how that model's tensors become a checkpoint of the family.
"""

from __future__ import annotations

from typing import Any

from tests.compiler import alibi
from tests.compiler.family_case import ALL_HEADS, SIZES, SPECIAL, FamilyCase, case_of, of_another
from tests.compiler.family_checkpoints import (
    CHATGLM,
    EXAONE,
    PHI,
    QWEN,
    experts_apart,
    internlm2,
    mixformer,
    packed,
    renamed,
)
from tests.compiler.recurrent_cases import RECURRENT
from tests.compiler.windowed_cases import LLAMA4

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
_GEMMA3: dict[str, Any] = {
    **SIZES,
    "model_type": "gemma3_text",
    "num_hidden_layers": 4,
    "head_dim": 32,
    "sliding_window": 16,
    "sliding_window_pattern": 2,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
_MISTRAL: dict[str, Any] = {**SIZES, "model_type": "mistral", "head_dim": 32, "sliding_window": None}


def _half_turned(**more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, **more}}


_YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "rope_theta": 10000.0,
}

_LATENT: dict[str, Any] = {
    **SIZES,
    **ALL_HEADS,
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
    **SPECIAL,
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

CASES: dict[str, FamilyCase] = {
    "llama": case_of("llama", rms_norm_eps=1e-5),
    "llama-dynamic": case_of("llama", rope_scaling={"type": "dynamic", "factor": 4.0}),
    "qwen2-yarn": case_of("qwen2", rope_parameters=_YARN),
    "qwen3": case_of("qwen3", head_dim=32, in_ci=True),
    "gemma": case_of("gemma", head_dim=32),
    "phi3": case_of("phi3"),
    "phi3-partial": case_of("phi3", sliding_window=None, **_half_turned()),
    # Both texts are longer than 16 tokens; with 64, both are shorter, and so is the library's context.
    "phi3-longrope": case_of("phi3", rope_parameters=_LONGROPE, original_max_position_embeddings=16),
    "phi3-longrope-short": FamilyCase(
        config={
            **SIZES,
            **SPECIAL,
            "model_type": "phi3",
            "rope_parameters": _LONGROPE,
            "original_max_position_embeddings": 64,
        },
        overrides={"context_window_size": 64},
    ),
    "phi": case_of("phi", sizes=SIZES | ALL_HEADS),
    "phi-norms": case_of("phi", qk_layernorm=True),
    "gpt_neox": case_of("gpt_neox", in_ci=True),
    "gpt_neox-sequential": case_of("gpt_neox", use_parallel_residual=False, rotary_pct=1.0),
    "gptj": case_of("gptj", sizes=_GPT, rotary_dim=8),
    "gpt2": case_of("gpt2", sizes=_GPT, in_ci=True),
    "gpt_bigcode": case_of("gpt_bigcode", sizes=_GPT),
    "gpt_bigcode-many": case_of("gpt_bigcode", sizes=_GPT, multi_query=False),
    "starcoder2": case_of("starcoder2"),
    "stablelm": case_of("stablelm", use_qkv_bias=True),
    "stablelm-parallel": case_of("stablelm", use_parallel_residual=True, qk_layernorm=True),
    "cohere": case_of("cohere"),
    "cohere-norms": case_of("cohere", use_qk_norm=True, logit_scale=0.5),
    "olmo": case_of("olmo"),
    "olmo-clipped": case_of("olmo", clip_qkv=0.5),
    "olmo2": case_of("olmo2"),
    "olmoe-clipped": case_of("olmoe", sizes=SIZES | ALL_HEADS, num_experts=6, num_experts_per_tok=2, clip_qkv=0.7),
    "granite": case_of(
        "granite",
        embedding_multiplier=12.0,
        residual_multiplier=0.22,
        attention_multiplier=0.1,
        logits_scaling=8.0,
    ),
    "granitemoe": case_of(
        "granitemoe",
        num_local_experts=6,
        num_experts_per_tok=2,
        embedding_multiplier=3.0,
        residual_multiplier=0.5,
        attention_multiplier=0.2,
        logits_scaling=2.0,
    ),
    "granitemoeshared": case_of(
        "granitemoeshared",
        num_local_experts=6,
        num_experts_per_tok=2,
        shared_intermediate_size=64,
        residual_multiplier=0.5,
        attention_multiplier=0.2,
    ),
    "nemotron": case_of("nemotron"),
    "glm": case_of("glm", head_dim=32),
    "glm4": case_of("glm4", head_dim=32),
    "internlm": of_another("llama", "internlm", given=ALL_HEADS, bias=False),
    "internlm-rotary": of_another(
        "llama",
        "internlm",
        given=ALL_HEADS,
        bias=False,
        rotary={"type": "dynamic", "base": 2000, "scaling_factor": 2.0},
        theirs={"rope_theta": 2000.0},
    ),
    "internlm2": of_another("llama", "internlm2", given={}, checkpoint=internlm2, bias=False),
    "internlm3": of_another("llama", "internlm3", given={"head_dim": 16, "rms_norm_eps": 1e-5}),
    "baichuan": of_another("llama", "baichuan", given=ALL_HEADS, checkpoint=packed("self_attn.W_pack")),
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
        checkpoint=packed("self_attn.W_pack"),
        in_ci=True,
    ),
    "orion": of_another(
        "stablelm",
        "orion",
        given={},
        theirs={
            "layer_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
        },
    ),
    "minicpm": of_another(
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
    "deepseek_v2": case_of("deepseek_v2", sizes=_LATENT, q_lora_rank=None, rope_parameters=_YARN | _SCALES),
    "deepseek_v2-groups": case_of(
        "deepseek_v2",
        sizes=_LATENT,
        q_lora_rank=24,
        topk_method="group_limited_greedy",
        n_group=4,
        topk_group=2,
        routed_scaling_factor=1.5,
        attention_bias=True,
    ),
    "deepseek_v3": case_of(
        "deepseek_v3",
        sizes=_LATENT | {"num_hidden_layers": 4},  # one of which is not exported
        in_ci=True,
        q_lora_rank=24,
        n_group=4,
        topk_group=2,
        n_shared_experts=2,
        rope_parameters=_YARN | _SCALES,
    ),
    "deepseek_v3-halves": case_of(
        "deepseek_v3", sizes=_LATENT, q_lora_rank=None, n_group=2, topk_group=1, rope_interleave=False
    ),
    "kimi_k2": FamilyCase(config={**_KIMI, "model_type": "kimi_k2"}, reference={**_KIMI, "model_type": "deepseek_v3"}),
    "minicpm3": case_of(
        "minicpm3",
        sizes=SIZES | ALL_HEADS,
        kv_lora_rank=32,
        q_lora_rank=24,
        qk_nope_head_dim=16,
        qk_rope_head_dim=16,
        dim_model_base=16,
        rope_parameters=_LONGROPE,
        original_max_position_embeddings=16,
    ),
    "bert": case_of("bert", in_ci=True),
    "roberta": case_of("roberta", pad_token_id=1, type_vocab_size=1, hidden_act="gelu_new"),
    "xlm-roberta": case_of("xlm-roberta"),
    "llama4": FamilyCase(
        config={"model_type": "llama4", "text_config": LLAMA4 | {"interleave_moe_layer_step": 1}},
        reference=LLAMA4 | {"interleave_moe_layer_step": 1},
        checkpoint=lambda tensors: {f"language_model.{name}": tensor for name, tensor in tensors.items()},
    ),
    "ministral3": case_of(
        "ministral3",
        sizes=SIZES | {"head_dim": 32},
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
    "minicpm-moe": of_another(
        "granitemoe",
        "minicpm",
        given={"tie_word_embeddings": False, "num_experts_per_tok": 2},
        checkpoint=experts_apart,
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
            **{name: value for name, value in SIZES.items() if name != "num_hidden_layers"},
            **SPECIAL,
            "model_type": "exaone",
            "num_layers": 3,
            "layer_norm_epsilon": 1e-5,
            "activation_function": "silu",
        },
        checkpoint=renamed(**EXAONE),
    ),
    "exaone-3.5": FamilyCase(
        config={
            **{name: value for name, value in SIZES.items() if name != "num_hidden_layers"},
            **SPECIAL,
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
        checkpoint=renamed(**EXAONE),
    ),
    "qwen": of_another(
        "qwen2",
        "qwen",
        given=ALL_HEADS,
        checkpoint=packed("attn.c_attn", **QWEN),
        intermediate_size=192,
        kv_channels=16,
        seq_length=128,
        rotary_emb_base=20000,
        theirs={"rope_theta": 20000.0},
    ),
    "chatglm": of_another(
        "glm",
        "chatglm",
        given={},
        checkpoint=packed("self_attention.query_key_value", **CHATGLM),
        **_CHATGLM,
        multi_query_attention=True,
        multi_query_group_num=2,
        theirs={"head_dim": 16, "rms_norm_eps": 1e-5, **_half_turned(rope_theta=50000.0)},
    ),
    "chatglm-heads": of_another(
        "glm",
        "chatglm",
        given=ALL_HEADS,
        checkpoint=packed("self_attention.query_key_value", by_head=16, **CHATGLM),
        **_CHATGLM,
        theirs={"head_dim": 16, "rms_norm_eps": 1e-5, **_half_turned(rope_theta=50000.0)},
    ),
    "phi-msft": of_another(
        "phi",
        "phi-msft",
        given={},
        checkpoint=packed("mixer.Wqkv", **PHI),
        **_GPT,
        n_inner=96,
        n_head_kv=2,
        rotary_dim=8,
    ),
    "mixformer-sequential": of_another(
        "phi", "mixformer-sequential", given=ALL_HEADS, checkpoint=mixformer, **_GPT, n_inner=96, rotary_dim=8
    ),
    "exaone4": case_of("exaone4", sliding_window=None, layer_types=["full_attention"] * 3),
    "smollm3": case_of("smollm3", sizes=SIZES | {"num_hidden_layers": 5}),
    **RECURRENT,
}

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
