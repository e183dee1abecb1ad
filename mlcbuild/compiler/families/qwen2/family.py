"""The Qwen2 family: decoders like those of the llama family, but with biases on queries, keys and values.

Fields that `config.json` leaves out have the defaults of transformers' `Qwen2Config`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder import DecoderConfig, read_decoder, read_limits
from mlcbuild.compiler.models.decoder_parameters import decoder_parameters
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf_config import decoder_document
from mlcbuild.compiler.models.parameters import ParameterList

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS = {"num_key_value_heads": 32, "max_position_embeddings": 32768}
_SLIDING_WINDOW = 4096
_MAX_WINDOW_LAYERS = 28
_FULL_ATTENTION = "full_attention"


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    config = read_decoder(reader, qkv_bias=True)
    _check_attention(reader, layers=config.num_layers)
    return FamilyModel(
        configuration=config,
        vocab_size=config.vocab_size,
        layers=config.layers,
        limits=read_limits(reader),
        chat_config=_chat_config(config),
        parameters=_parameters(config),
    )


def _check_attention(reader: ConfigReader, *, layers: int) -> None:
    """Raise StageError unless every layer sees all of the text."""
    windows = reader.boolean("use_sliding_window", default=False)
    if reader.has("layer_types"):  # Transformers reads max_window_layers only without this field.
        if reader.document["layer_types"] != [_FULL_ATTENTION] * layers:
            raise reader.fail("layer_types", f'has to be "{_FULL_ATTENTION}" for each of the {layers} layers')
    elif windows and reader.document.get("sliding_window", _SLIDING_WINDOW) is not None:
        first = reader.integer("max_window_layers", low=0, high=1 << 12, default=_MAX_WINDOW_LAYERS)
        if first < layers:
            raise reader.fail(
                "use_sliding_window",
                f"is true, so layers from number {first} on have a sliding window, which is not supported",
            )
    if reader.has("dual_chunk_attention_config"):
        raise reader.fail("dual_chunk_attention_config", "is set, but attention in chunks is not supported")


def _parameters(config: DecoderConfig) -> ParameterList:
    """The parameters of any decoder. Only for Qwen2, MLC-LLM calls the fused projection `c_attn`."""
    listed = decoder_parameters(config, gguf_interleaves=False)
    parameters = [
        replace(parameter, name=parameter.name.replace(".self_attn.qkv_proj.", ".self_attn.c_attn."))
        for parameter in listed.parameters
    ]
    return replace(listed, parameters=tuple(parameters))


def _chat_config(config: DecoderConfig) -> dict[str, object]:
    """The fields of MLC-LLM's `QWen2Config`, and the RoPE scaling, if there is one, which MLC-LLM does not have."""
    attention, rotary = config.attention, config.attention.rotary
    document: dict[str, object] = {
        "hidden_act": config.feed_forward.activation.value,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.feed_forward.intermediate_size,
        "num_attention_heads": attention.query_heads,
        "num_hidden_layers": config.num_layers,
        "num_key_value_heads": attention.key_value_heads,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": rotary.base,
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": config.tie_word_embeddings,
        "context_window_size": None,
        "prefill_chunk_size": None,
        "tensor_parallel_shards": None,
        "head_dim": attention.head_dim,
        "dtype": "float32",
        "max_batch_size": None,
    }
    if rotary.model_config is not None:
        document["rope_scaling"] = rotary.model_config
    return document


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
