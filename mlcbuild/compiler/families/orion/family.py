"""Orion: a llama with layer norms.

Defaults are those of the `OrionConfig` that its checkpoints come with.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, NormConfig, NormKind, read_decoder
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_CHAT_CONFIG = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "rms_norm_eps", "vocab_size"),
    *("position_embedding_base", "context_window_size", "prefill_chunk_size", "num_key_value_heads", "head_dim"),
    *("tensor_parallel_shards", "max_batch_size"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(max_position_embeddings=4096, rms_norm_eps=1e-5)
    reader.refuse(attention_bias=False)
    config = read_decoder(reader)
    config = replace(config, norm=NormConfig(epsilon=config.norm.epsilon, kind=NormKind.LAYER, bias=True))
    return decoder_model(reader, config, CheckpointLayout(), fields=_CHAT_CONFIG)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    return decoder_document(
        file, architecture="orion", model_type="orion", class_name="OrionForCausalLM", layer_norm="rms_norm_eps"
    )


FAMILY = Family(
    name="orion",
    models="Orion 14B",
    model_types=("orion",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"orion": GGUFArchitecture(config=_config_of_gguf)},
)
