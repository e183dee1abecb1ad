"""The llama family: decoders with grouped-query attention, RMS norms and gated feed-forwards.

Defaults are those of transformers' `LlamaConfig` and `MistralConfig` where a `config.json` leaves a field out.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder, read_limits, read_window
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.mixture import mixture_document
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_GGUF_WINDOW = "attention.sliding_window"
_LLAMA_DEFAULTS = {"max_position_embeddings": 2048}
_MISTRAL_DEFAULTS = {"num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096}


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**(_MISTRAL_DEFAULTS if _is_mistral(reader) else _LLAMA_DEFAULTS))
    attention_bias, mlp_bias = _bias(reader, "attention_bias"), _bias(reader, "mlp_bias")
    config = read_decoder(
        reader,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=mlp_bias,
    )
    limits = (read_window if _is_mistral(reader) else read_limits)(reader)
    own: dict[str, object] = {"attention_bias": True} if attention_bias else {}
    own |= {"mlp_bias": True} if mlp_bias else {}
    own |= {"sliding_window_size": None, "attention_sink_size": None} if _is_mistral(reader) else {}
    return decoder_model(reader, config, CheckpointLayout(gguf_interleaves=True), limits=limits, own=own)


def _bias(reader: ConfigReader, name: str) -> bool:
    has_bias = reader.boolean(name, default=False)
    if has_bias and _is_mistral(reader):
        raise reader.fail(name, "is true; a mistral has no biases")
    return has_bias


def _is_mistral(reader: ConfigReader) -> bool:
    return reader.string("model_type") == "mistral"


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """A Mistral has the architecture of a llama. Only the window tells, and a file without one needs no other type. So
    has a Mixtral, which has experts."""
    if file.integer("llama.expert_count", 0) > 0:
        return mixture_document(file, architecture="llama", model_type="mixtral", class_name="MixtralForCausalLM")
    window = file.integer(f"llama.{_GGUF_WINDOW}", 0)
    model_type, class_name = ("mistral", "MistralForCausalLM") if window else ("llama", "LlamaForCausalLM")
    document = decoder_document(
        file, architecture="llama", model_type=model_type, class_name=class_name, also_read=(_GGUF_WINDOW,)
    )
    if window:
        document["sliding_window"] = window
    biases = {
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in file.tensors,
    }
    return document | biases


FAMILY = Family(
    name="llama",
    models="Llama 2 and 3, Mistral, SmolLM2, TinyLlama",
    model_types=("llama", "mistral"),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "llama": GGUFArchitecture(
            config=_config_of_gguf,
            metadata=partial(decoder_metadata, keys=(_GGUF_WINDOW, "expert_count", "expert_used_count")),
        )
    },
)
