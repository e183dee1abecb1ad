"""The Qwen2 family: decoders like those of the llama family, but with biases on queries, keys and values.

Fields that `config.json` leaves out have the defaults of transformers' `Qwen2Config`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.layer_types import with_windows_of_qwen
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS = {"num_key_value_heads": 32, "max_position_embeddings": 32768}
_NAMES = DecoderNames(qkv="self_attn.c_attn")  # of MLC-LLM's families, Qwen2 and 3 alone call it so
_CHAT_CONFIG = (
    *("hidden_act", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers"),
    *("num_key_value_heads", "rms_norm_eps", "rope_theta", "vocab_size", "tie_word_embeddings"),
    *("context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "head_dim", "dtype", "max_batch_size"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    config = with_windows_of_qwen(reader, replace(read_decoder(reader, qkv_bias=True), names=_NAMES))
    if reader.has("dual_chunk_attention_config"):
        raise reader.fail("dual_chunk_attention_config", "is set, but attention in chunks is not supported")
    return decoder_model(reader, config, CheckpointLayout(), fields=_CHAT_CONFIG)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    return decoder_document(file, architecture="qwen2", model_type="qwen2", class_name="Qwen2ForCausalLM")


FAMILY = Family(
    name="qwen2",
    models="Qwen2 and Qwen2.5",
    model_types=("qwen2",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"qwen2": GGUFArchitecture(config=_config_of_gguf)},
)
