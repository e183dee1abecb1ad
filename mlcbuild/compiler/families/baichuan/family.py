"""Baichuan and Baichuan 2 of 7 billion parameters: a llama with one matrix for queries, keys and values.

Models of 13 billion use ALiBi in place of rotary embeddings, and are refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_NAMES = DecoderNames(qkv="self_attn.W_pack")
_LAYOUT = CheckpointLayout(
    qkv=(TensorName("self_attn.W_pack"),), gguf_qkv=("attn_q", "attn_k", "attn_v"), gguf_interleaves=True
)
_ROTATING_LAYERS = 32
_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "initializer_range"),
    *("intermediate_size", "rms_norm_eps", "use_cache", "pad_token_id", "bos_token_id", "eos_token_id"),
    *("tie_word_embeddings", "context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "max_batch_size"),
    "head_dim",
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.without("num_key_value_heads", "head_dim")
    if reader.has("model_max_length") and not reader.has("max_position_embeddings"):
        raise reader.fail("model_max_length", "stands in place of max_position_embeddings: this model uses ALiBi")
    if reader.integer("num_hidden_layers", low=1, high=1 << 12) == 40:
        raise reader.fail("num_hidden_layers", "is 40: models of that size use ALiBi, which is not supported")
    config = replace(read_decoder(reader.with_defaults(max_position_embeddings=4096)), names=_NAMES)
    own = {"use_cache": True, "initializer_range": reader.value("initializer_range")}
    own |= {name: reader.value(name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    return decoder_model(reader, config, _LAYOUT, fields=_CHAT_CONFIG, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp knows them, models of 32 layers rotate, and no others."""
    layers = file.integer("baichuan.block_count")
    if layers != _ROTATING_LAYERS:
        raise StageError(f"{file.path} has {layers} layers; models of {_ROTATING_LAYERS} alone have rotary embeddings")
    return decoder_document(file, architecture="baichuan", model_type="baichuan", class_name="BaichuanForCausalLM")


FAMILY = Family(
    name="baichuan",
    models="Baichuan 7B",
    model_types=("baichuan",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"baichuan": GGUFArchitecture(config=_config_of_gguf)},
)
