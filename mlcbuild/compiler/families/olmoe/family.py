"""OLMoE: mixtures of experts, and norms of all queries and all keys of a token.

Defaults are those of transformers' `OlmoeConfig`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, NormScope, QueryKeyNorm, read_decoder
from mlcbuild.compiler.models.architecture.mixture import MixtureConfig, RouterConfig, read_experts
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.mixture import mixture_document
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS: dict[str, object] = {
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "intermediate_size": 2048,
    "num_experts": 64,
    "num_experts_per_tok": 8,
}


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias)
    clip = reader.number("clip_qkv", low=1e-6, high=1e6) if reader.has("clip_qkv") else 0.0
    experts, chosen = read_experts(reader)
    normalized = reader.boolean("norm_topk_prob", default=False)
    mixture = MixtureConfig(
        experts=experts,
        experts_per_token=chosen,
        intermediate_size=config.feed_forward.intermediate_size,
        activation=config.feed_forward.activation,
        router=RouterConfig(normalized=normalized),
    )
    norm = QueryKeyNorm(norm=config.norm, scope=NormScope.ALL_HEADS)
    attention = replace(config.attention, query_key_norm=norm, qkv_clip=clip)
    config = replace(config, attention=attention, feed_forward=mixture)
    own = {"num_experts": experts, "num_experts_per_tok": chosen, "norm_topk_prob": normalized}
    return decoder_model(reader, config, CheckpointLayout(), own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp computes it, the weights of the chosen experts are not normalized."""
    document = mixture_document(file, architecture="olmoe", model_type="olmoe", class_name="OlmoeForCausalLM")
    return document | {"norm_topk_prob": False}


FAMILY = Family(
    name="olmoe",
    models="OLMoE",
    model_types=("olmoe",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "olmoe": GGUFArchitecture(
            config=_config_of_gguf, metadata=partial(decoder_metadata, keys=("expert_count", "expert_used_count"))
        )
    },
)
