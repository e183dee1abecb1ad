"""Baichuan and Baichuan 2: a llama with one matrix for queries, keys and values.

Models of 13 billion parameters have ALiBi in place of rotary embeddings. Their own code tells them by the name of the
field of the context's length, llama.cpp by 40 layers. Baichuan 2, which has another vocabulary, normalizes the rows of
its head as it is loaded (`NormHead` of its modeling_baichuan.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
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
_LAYERS_THAT_ROTATE, _LAYERS_WITH_ALIBI = 32, 40
_VOCABULARY_OF_2 = 125696
_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "initializer_range"),
    *("intermediate_size", "rms_norm_eps", "use_cache", "pad_token_id", "bos_token_id", "eos_token_id"),
    *("tie_word_embeddings", "context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "max_batch_size"),
    "head_dim",
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.without("num_key_value_heads", "head_dim")
    by_length = reader.has("model_max_length") and not reader.has("max_position_embeddings")
    if by_length:
        reader = reader.with_names(max_position_embeddings="model_max_length")
    reader = reader.with_defaults(max_position_embeddings=4096)
    if by_length or reader.integer("num_hidden_layers", low=1, high=1 << 12) == _LAYERS_WITH_ALIBI:
        config = read_decoder(reader, rotary_form=RotaryForm.NONE)
        config = replace(config, attention=replace(config.attention, alibi=True))
    else:
        config = read_decoder(reader)
    layout = replace(_LAYOUT, unit_head=config.vocab_size == _VOCABULARY_OF_2)
    own = {"use_cache": True, "initializer_range": reader.value("initializer_range")}
    own |= {name: reader.value(name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    return decoder_model(reader, replace(config, names=_NAMES), layout, fields=_CHAT_CONFIG, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp knows them, models of 32 layers rotate, and those of 40 have ALiBi."""
    layers = file.integer("baichuan.block_count")
    if layers not in (_LAYERS_THAT_ROTATE, _LAYERS_WITH_ALIBI):
        raise StageError(
            f"{file.path} has {layers} layers; of {_LAYERS_THAT_ROTATE} it is known that they rotate, and of"
            f" {_LAYERS_WITH_ALIBI} that they have ALiBi"
        )
    return decoder_document(file, architecture="baichuan", model_type="baichuan", class_name="BaichuanForCausalLM")


FAMILY = Family(
    name="baichuan",
    models="Baichuan, Baichuan 2",
    model_types=("baichuan",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"baichuan": GGUFArchitecture(config=_config_of_gguf)},
)
