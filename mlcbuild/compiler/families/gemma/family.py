"""The first Gemma: scaled embeddings, norms that multiply by 1 + w, and a head that is the embedding.

Defaults are those of transformers' `GemmaConfig`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS = {"head_dim": 256, "max_position_embeddings": 8192, "tie_word_embeddings": True}
_CHAT_CONFIG = (
    *("hidden_size", "intermediate_size", "attention_bias", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("num_hidden_layers", "rms_norm_eps", "vocab_size", "hidden_activation", "position_embedding_base"),
    *("context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "max_batch_size"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS, num_key_value_heads=16, hidden_act="gelu_pytorch_tanh")
    if reader.string("hidden_act", default="gelu") == "gelu":  # what the first files say, and mean its approximation
        reader = replace(reader, document={**reader.document, "hidden_act": "gelu_pytorch_tanh"})
    reader.refuse(use_bidirectional_attention=False)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias)
    config = replace(config, embedding_scale=config.hidden_size**0.5)
    return decoder_model(reader, config, CheckpointLayout(one_added=True), fields=_CHAT_CONFIG)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    return decoder_document(
        file, architecture="gemma", model_type="gemma", class_name="GemmaForCausalLM", hidden_act="gelu_pytorch_tanh"
    )


FAMILY = Family(
    name="gemma",
    models="Gemma 1",
    model_types=("gemma",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"gemma": GGUFArchitecture(config=_config_of_gguf)},
)
