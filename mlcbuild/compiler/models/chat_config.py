"""The object `model_config` of an `mlc-chat-config.json`, of a decoder: MLC-LLM's fields, in its order."""

from __future__ import annotations

from collections.abc import Mapping

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig

SIZES = ("context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "max_batch_size")
"""What follows from a library's sizes."""

LLAMA = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "rms_norm_eps", "vocab_size"),
    *("tie_word_embeddings", "position_embedding_base", "rope_scaling", "context_window_size", "prefill_chunk_size"),
    *("num_key_value_heads", "head_dim", "tensor_parallel_shards", "pipeline_parallel_stages", "max_batch_size"),
)
"""The fields of MLC-LLM's llama, and of models that MLC-LLM does not have."""


def chat_config(config: DecoderConfig, fields: tuple[str, ...], own: Mapping[str, object]) -> dict[str, object]:
    """These fields in their order, with the values that a decoder gives them, whatever MLC-LLM's model calls them, or
    the family's `own`; further ones of its own behind them, and RoPE scaling, if there is one. None stands where a size
    goes."""
    attention, feed_forward, epsilon = config.attention, config.feed_forward, config.norm.epsilon
    inner, activation = feed_forward.intermediate_size, feed_forward.activation.value
    rotary = attention.rotary
    known: dict[str, object] = {
        "hidden_size": config.hidden_size,
        "n_embd": config.hidden_size,
        "intermediate_size": inner,
        "n_inner": inner,
        "ffn_hidden_size": inner,
        "num_attention_heads": attention.query_heads,
        "n_head": attention.query_heads,
        "num_key_value_heads": attention.key_value_heads,
        "head_dim": attention.head_dim,
        "num_hidden_layers": config.num_layers,
        "n_layer": config.num_layers,
        "num_layers": config.num_layers,
        "hidden_act": activation,
        "hidden_activation": activation,
        "activation_function": activation,
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": config.tie_word_embeddings,
        "position_embedding_base": rotary.base,
        "rope_theta": rotary.base,
        "rope_scaling": rotary.model_config,
        "attention_bias": attention.qkv_bias,
        "pipeline_parallel_stages": 1,
        "dtype": "float32",
        **dict.fromkeys(("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"), epsilon),
        **dict.fromkeys(SIZES),
    }
    found = {name: own.get(name, known.get(name)) for name in fields} | dict(own)
    if rotary.model_config is not None:
        found.setdefault("rope_scaling", rotary.model_config)
    return found
