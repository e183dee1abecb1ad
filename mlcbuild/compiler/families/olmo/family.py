"""The first OLMo: layer norms without weights.

Defaults are those of transformers' `OlmoConfig`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, NormConfig, NormKind, read_decoder
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.numbers import number_below
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "position_embedding_base"),
    *("rope_scaling", "intermediate_size", "hidden_act", "num_hidden_layers", "tie_word_embeddings"),
    *("context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "pipeline_parallel_stages"),
    *("max_batch_size", "clip_qkv"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(max_position_embeddings=2048)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias)
    clip = reader.number("clip_qkv", low=1e-6, high=1e6) if reader.has("clip_qkv") else 0.0
    config = replace(
        config,
        norm=NormConfig(epsilon=1e-5, kind=NormKind.LAYER, weight=False),
        attention=replace(config.attention, qkv_clip=clip),
    )
    return decoder_model(
        reader, config, CheckpointLayout(gguf_interleaves=True), fields=_CHAT_CONFIG, own={"clip_qkv": clip or None}
    )


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    document = decoder_document(
        file,
        architecture="olmo",
        model_type="olmo",
        class_name="OlmoForCausalLM",
        layer_norm="norm_eps",
        also_read=("attention.clamp_kqv",),
    )
    clip = number_below(file, "olmo", "attention.clamp_kqv", 0.0)
    return document | {"clip_qkv": clip or None}


FAMILY = Family(
    name="olmo",
    models="OLMo",
    model_types=("olmo",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "olmo": GGUFArchitecture(
            config=_config_of_gguf, metadata=partial(decoder_metadata, keys=("attention.clamp_kqv",))
        )
    },
)
