"""OLMo 2: norms behind attention and feed-forward, and of all queries and all keys together.

Defaults are those of transformers' `Olmo2Config`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.checkpoint_layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder import DecoderConfig, NormScope, QueryKeyNorm, Wiring, read_decoder
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf_config import decoder_document

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "position_embedding_base"),
    *("rope_scaling", "intermediate_size", "hidden_act", "num_hidden_layers", "rms_norm_eps", "tie_word_embeddings"),
    *("context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "pipeline_parallel_stages"),
    *("max_batch_size",),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(max_position_embeddings=2048, rms_norm_eps=1e-5)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias)
    norms = QueryKeyNorm(norm=config.norm, scope=NormScope.ALL_HEADS)
    config = replace(config, wiring=Wiring.NORM_AFTER, attention=replace(config.attention, query_key_norm=norms))
    return decoder_model(reader, config, CheckpointLayout(), fields=_CHAT_CONFIG)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    return decoder_document(file, architecture="olmo2", model_type="olmo2", class_name="Olmo2ForCausalLM")


FAMILY = Family(
    name="olmo2",
    models="OLMo 2",
    model_types=("olmo2",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"olmo2": GGUFArchitecture(config=_config_of_gguf)},
)
