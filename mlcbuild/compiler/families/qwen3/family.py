"""The Qwen3 family: Qwen2 with norms of each query and key, and no biases.

Defaults are those of transformers' `Qwen3Config`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, QueryKeyNorm, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.layer_types import with_windows_of_qwen
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS = {"num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 32768}
_NAMES = DecoderNames(qkv="self_attn.c_attn")
_CHAT_CONFIG = (
    *("hidden_act", "hidden_size", "intermediate_size", "attention_bias", "num_attention_heads", "num_hidden_layers"),
    *("num_key_value_heads", "rms_norm_eps", "rope_theta", "vocab_size", "tie_word_embeddings"),
    *("context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "head_dim", "dtype", "max_batch_size"),
    "weight_block_size",
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias)
    attention = replace(config.attention, query_key_norm=QueryKeyNorm(norm=config.norm))
    config = with_windows_of_qwen(reader, replace(config, attention=attention, names=_NAMES))
    return decoder_model(reader, config, CheckpointLayout(), fields=_CHAT_CONFIG)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    document = decoder_document(file, architecture="qwen3", model_type="qwen3", class_name="Qwen3ForCausalLM")
    return document | {"attention_bias": "blk.0.attn_q.bias" in file.tensors}


FAMILY = Family(
    name="qwen3",
    models="dense Qwen3",
    model_types=("qwen3",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"qwen3": GGUFArchitecture(config=_config_of_gguf)},
)
