"""The Phi-3 family: fused projections, LongRoPE in the models of long texts.

Defaults are those of transformers' `Phi3Config`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder, read_window
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.checkpoints.layout import IGNORED_WITH_LONGROPE, CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_NAMES = DecoderNames(
    embedding="transformer.embd",
    layers="transformer.h",
    norm="transformer.norm",
    attention_norm="ln",
    qkv="mixer.qkv_proj",
    output="mixer.out_proj",
)
_LAYOUT = CheckpointLayout(
    qkv=(TensorName("self_attn.qkv_proj", "attn_qkv"),),
    gate_up=(TensorName("mlp.gate_up_proj", "ffn_up"),),
    ignored=IGNORED_WITH_LONGROPE,
)
_GGUF_WINDOW = "attention.sliding_window"
_CHAT_CONFIG = (
    *("model_type", "hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("rms_norm_eps", "num_key_value_heads", "max_position_embeddings", "position_embedding_base", "rope_scaling"),
    *("original_max_position_embeddings", "context_window_size", "prefill_chunk_size", "head_dim"),
    *("tensor_parallel_shards", "max_batch_size", "tie_word_embeddings", "partial_rotary_factor"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(
        max_position_embeddings=4096, original_max_position_embeddings=4096, rms_norm_eps=1e-5
    )
    config = replace(read_decoder(reader, partial_rotation=1.0), names=_NAMES)
    own = {
        "model_type": "phi3",
        "max_position_embeddings": reader.value("max_position_embeddings"),
        "original_max_position_embeddings": reader.value("original_max_position_embeddings"),
        "partial_rotary_factor": reader.number("partial_rotary_factor", low=0.0, high=1.0, default=1.0),
    }
    return decoder_model(reader, config, _LAYOUT, fields=_CHAT_CONFIG, limits=read_window(reader), own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    window = file.integer(f"phi3.{_GGUF_WINDOW}", 0)
    document = decoder_document(
        file,
        architecture="phi3",
        model_type="phi3",
        class_name="Phi3ForCausalLM",
        partial=True,
        also_read=(_GGUF_WINDOW,),
    )
    scaling = document.get("rope_scaling")
    if isinstance(scaling, dict) and scaling["rope_type"] == "longrope":
        document["original_max_position_embeddings"] = scaling["original_max_position_embeddings"]
    return document | {"sliding_window": window or None}


FAMILY = Family(
    name="phi3",
    models="Phi-3, Phi-3.5 mini, Phi-4 and Phi-4 mini",
    model_types=("phi3",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"phi3": GGUFArchitecture(config=_config_of_gguf, metadata=partial(decoder_metadata, keys=(_GGUF_WINDOW,)))},
)
