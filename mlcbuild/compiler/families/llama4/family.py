"""Llama 4, its text part: layers that see a chunk of the text and rotate, and every fourth one, which sees all, does
not rotate and has a temperature of its own; experts that are given their input times its weight, and one that all
share.

Defaults are those of transformers' `Llama4TextConfig` where a `config.json` leaves a field out. Names of parameters are
MLC-LLM's. But MLC-LLM leaves the matrices of experts unquantized, (in, out); here they are those of all mixtures.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.mixture import MixtureNames
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, ExpertNames, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.chunked_layers import with_chunked_layers
from mlcbuild.compiler.models.configuration.interleaved_mixture import with_interleaved_mixture
from mlcbuild.compiler.models.configuration.text_config import read_text_config
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.interleaved_mixture import (
    INTERLEAVED_MIXTURE_KEYS,
    interleaved_mixture_fields,
    interleaved_mixture_metadata,
)
from mlcbuild.compiler.models.gguf.windows import WINDOW
from mlcbuild.compiler.models.gguf.writing import decoder_metadata
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, WrittenModel
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS: dict[str, object] = {
    "vocab_size": 202048,
    "hidden_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "attention_chunk_size": 8192,
    "attn_temperature_tuning": True,
}
_CHUNK, _EXPERTS_WITHOUT_NORMS = 8192, 128  # of GGUF files
_NAMES = DecoderNames(
    apart=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    gate_up="feed_forward.gate_up_proj",
    down="feed_forward.down_proj",
)
_EXPERTS = MixtureNames(
    router="feed_forward.router.router",
    gate_up="feed_forward.experts.gate_up_proj",
    down="feed_forward.experts.down_proj",
    shared="feed_forward.shared_expert",
)
_LAYOUT = CheckpointLayout(
    gate_up=(TensorName("feed_forward.gate_proj", "ffn_gate"), TensorName("feed_forward.up_proj", "ffn_up")),
    down=TensorName("feed_forward.down_proj", "ffn_down"),
    experts=ExpertNames(
        module="feed_forward",
        router="router",
        fused_gate_up=("feed_forward.experts.gate_up_proj",),
        fused_down=("feed_forward.experts.down_proj",),
        fused_router="feed_forward.router",
        transposed=True,
    ),
    ignored=(*CheckpointLayout().ignored, r"vision_model\..*", r"multi_modal_projector\..*"),
)
_CHAT_CONFIG = (
    *("text_config", "tensor_parallel_shards", "context_window_size", "pipeline_parallel_stages"),
    *("prefill_chunk_size", "max_batch_size", "disaggregation", "vocab_size"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    is_wrapper = reader.string("model_type") == "llama4"
    reader = (read_text_config(reader, "llama4_text") if is_wrapper else reader).with_defaults(**_DEFAULTS)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(
        reader.with_names(intermediate_size="intermediate_size_mlp"),
        qkv_bias=bias,
        output_bias=bias,
        intermediate_default=16384,
        rotary_form=RotaryForm.NEIGHBOURS,
    )
    config = with_chunked_layers(reader, replace(config, names=_NAMES))
    config = with_interleaved_mixture(reader, config, _EXPERTS)
    own = {"text_config": {**reader.defaults, **reader.document}, "disaggregation": False}
    return decoder_model(
        reader, config, _LAYOUT.below("language_model.") if is_wrapper else _LAYOUT, fields=_CHAT_CONFIG, own=own
    )


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp knows them: chunks of 8192 tokens, one layer of four that does not rotate, and norms of queries and
    keys in all models but those of 128 experts."""
    document = decoder_document(
        file,
        architecture="llama4",
        model_type="llama4_text",
        class_name="Llama4ForCausalLM",
        also_read=(*INTERLEAVED_MIXTURE_KEYS, WINDOW),
    )
    if file.integer(f"llama4.{WINDOW}", _CHUNK) != _CHUNK:
        raise StageError(f"{file.path} has chunks of another length than {_CHUNK} tokens, which is not supported")
    document |= {"attention_bias": "blk.0.attn_q.bias" in file.tensors, "attention_chunk_size": _CHUNK}
    document |= interleaved_mixture_fields(file, "llama4")
    return document | {"use_qk_norm": document["num_local_experts"] != _EXPERTS_WITHOUT_NORMS}


def _metadata(model: WrittenModel) -> GGUFMetadata:
    keys = ("expert_count", "expert_used_count", "expert_feed_forward_length")
    return decoder_metadata(model, keys=keys, own=interleaved_mixture_metadata(model))


FAMILY = Family(
    name="llama4",
    models="Llama 4 (text)",
    model_types=("llama4", "llama4_text"),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"llama4": GGUFArchitecture(config=_config_of_gguf, metadata=_metadata)},
)
