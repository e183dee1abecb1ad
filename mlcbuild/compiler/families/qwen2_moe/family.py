"""Qwen2 with mixtures of experts, and one shared expert beside them, whose result is gated.

Defaults are those of transformers' `Qwen2MoeConfig`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.layer_types import with_windows_of_qwen
from mlcbuild.compiler.models.configuration.mixture_layers import with_mixture_of_qwen
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.mixture import mixture_document
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS: dict[str, object] = {
    "num_key_value_heads": 16,
    "max_position_embeddings": 32768,
    "intermediate_size": 5632,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
}
_CHAT_CONFIG = (
    *("hidden_act", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers"),
    *("num_key_value_heads", "rms_norm_eps", "rope_theta", "vocab_size", "tie_word_embeddings"),
    *("context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "head_dim", "dtype", "max_batch_size"),
    *("moe_intermediate_size", "shared_expert_intermediate_size", "num_experts_per_tok", "num_experts"),
    *("decoder_sparse_step", "norm_topk_prob"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    config = read_decoder(reader, qkv_bias=reader.boolean("qkv_bias", default=True))
    config = replace(config, names=DecoderNames(qkv="self_attn.c_attn"))
    config, own = with_mixture_of_qwen(reader, with_windows_of_qwen(reader, config, alternating=True), shares=True)
    return decoder_model(reader, config, CheckpointLayout(), fields=_CHAT_CONFIG, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp computes it, the weights of the chosen experts are not normalized."""
    document = mixture_document(file, architecture="qwen2moe", model_type="qwen2_moe", class_name="Qwen2MoeForCausalLM")
    return document | {"norm_topk_prob": False}


FAMILY = Family(
    name="qwen2_moe",
    models="Qwen1.5-MoE and Qwen2-MoE",
    model_types=("qwen2_moe",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "qwen2moe": GGUFArchitecture(
            config=_config_of_gguf,
            metadata=partial(
                decoder_metadata,
                keys=(
                    "expert_count",
                    "expert_used_count",
                    "expert_feed_forward_length",
                    "expert_shared_feed_forward_length",
                ),
            ),
        )
    },
)
