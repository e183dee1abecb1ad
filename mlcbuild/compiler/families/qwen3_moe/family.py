"""Qwen3 with mixtures of experts.

Defaults are those of transformers' `Qwen3MoeConfig`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import (
    DecoderConfig,
    QueryKeyNorm,
    read_decoder,
    read_limits,
    read_window,
)
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.mixture_layers import with_mixture_of_qwen
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.mixture import mixture_document
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS: dict[str, object] = {
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "intermediate_size": 6144,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "sliding_window": 4096,
}
_CHAT_CONFIG = (
    *("hidden_act", "hidden_size", "intermediate_size", "attention_bias", "num_attention_heads", "num_hidden_layers"),
    *("num_key_value_heads", "rms_norm_eps", "rope_theta", "vocab_size", "tie_word_embeddings"),
    *("context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "head_dim", "dtype", "max_batch_size"),
    *("weight_block_size", "moe_intermediate_size", "num_experts_per_tok", "num_experts", "decoder_sparse_step"),
    "norm_topk_prob",
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias)
    attention = replace(config.attention, query_key_norm=QueryKeyNorm(norm=config.norm))
    config = replace(config, attention=attention, names=DecoderNames(qkv="self_attn.c_attn"))
    config, own = with_mixture_of_qwen(reader, config)
    limits = read_limits(reader)
    if reader.boolean("use_sliding_window", default=False):  # All layers have a window then, whatever others say.
        limits = read_window(reader)
        own |= {"sliding_window_size": None, "attention_sink_size": None}
    return decoder_model(reader, config, CheckpointLayout(), fields=_CHAT_CONFIG, limits=limits, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp computes it, the weights of the chosen experts are normalized."""
    document = mixture_document(file, architecture="qwen3moe", model_type="qwen3_moe", class_name="Qwen3MoeForCausalLM")
    return document | {"norm_topk_prob": True}


FAMILY = Family(
    name="qwen3_moe",
    models="Qwen3 with experts",
    model_types=("qwen3_moe",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "qwen3moe": GGUFArchitecture(
            config=_config_of_gguf,
            metadata=partial(
                decoder_metadata, keys=("expert_count", "expert_used_count", "expert_feed_forward_length")
            ),
        )
    },
)
