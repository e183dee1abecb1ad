"""Ministral 3: a llama whose queries have a temperature that grows with their position, and frequencies of YaRN.

Defaults are those of transformers' `Ministral3Config`. `mistral3` is its vision-language model, and also that of
Mistral Small 3.1, whose text part is a `mistral`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, TemperatureTuning, read_decoder, read_window
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import MAX_CONTEXT, ConfigReader
from mlcbuild.compiler.models.configuration.text_config import read_text_config, text_layout
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.numbers import number_below
from mlcbuild.compiler.models.gguf.writing import decoder_metadata
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, Value, WrittenModel
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_WRAPPER = "mistral3"
_DEFAULTS: dict[str, object] = {
    "vocab_size": 131072,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 34,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-5,
}
_MISTRAL_DEFAULTS = {"num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096}
_ROTARY: dict[str, object] = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
_CHAT_CONFIG = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "rms_norm_eps", "vocab_size"),
    *("attention_sink_size", "context_window_size", "dtype", "head_dim", "hidden_act", "max_batch_size"),
    *("num_key_value_heads", "position_embedding_base", "prefill_chunk_size", "rope_parameters"),
    *("sliding_window_size", "tensor_parallel_shards", "tie_word_embeddings", "weight_block_size"),
)

_LAYOUT = CheckpointLayout(gguf_interleaves=True)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    layout = _LAYOUT
    if reader.has("text_config") or reader.string("model_type") == _WRAPPER:
        reader, layout = read_text_config(reader, "mistral", "ministral3"), text_layout(layout)
    if reader.string("model_type") == "mistral":
        return _mistral(reader.with_defaults(**_MISTRAL_DEFAULTS), layout)
    reader = reader.with_defaults(**_DEFAULTS)
    fields = [name for name in ("rope_scaling", "rope_parameters") if reader.document.get(name) not in (None, {})]
    if not fields:
        reader = replace(reader, document={**reader.document, "rope_parameters": _ROTARY})
    table = reader.table(fields[0] if fields else "rope_parameters")
    tuning = TemperatureTuning(
        strength=table.number("llama_4_scaling_beta", low=0.0, high=1e6),
        interval=table.integer("original_max_position_embeddings", low=1, high=MAX_CONTEXT),
    )
    config = read_decoder(reader)
    config = replace(config, attention=replace(config.attention, temperature=tuning))
    own = {"rope_parameters": dict(table.document)}
    return decoder_model(reader, config, layout, fields=_CHAT_CONFIG, limits=read_window(reader), own=own)


def _mistral(reader: ConfigReader, layout: CheckpointLayout) -> FamilyModel[DecoderConfig]:
    reader.refuse(attention_bias=False, mlp_bias=False)
    own = {"sliding_window_size": None, "attention_sink_size": None}
    return decoder_model(reader, read_decoder(reader), layout, limits=read_window(reader), own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    document = decoder_document(
        file,
        architecture="mistral3",
        model_type="ministral3",
        class_name="Ministral3ForCausalLM",
        also_read=("attention.temperature_scale",),
        yarn_log_multiplied=True,
    )
    scaling = document.pop("rope_scaling", None)
    if not isinstance(scaling, dict) or scaling["rope_type"] != "yarn":
        raise StageError(f"{file.path} does not scale RoPE as a Ministral 3 does, by YaRN")
    tuning = {"llama_4_scaling_beta": number_below(file, "mistral3", "attention.temperature_scale", 0.0)}
    document["rope_parameters"] = {"rope_theta": document["rope_theta"], **scaling, **tuning}
    return document


def _metadata(model: WrittenModel) -> GGUFMetadata:
    tuning = model.configuration.attention.temperature
    own: dict[str, Value] = {} if tuning is None else {"attention.temperature_scale": tuning.strength}
    return decoder_metadata(model, own=own, log_multiplied=True)


FAMILY = Family(
    name="ministral3",
    models="Ministral 3, Mistral Small 3.1 (text)",
    model_types=("ministral3", _WRAPPER),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"mistral3": GGUFArchitecture(config=_config_of_gguf, metadata=_metadata)},
)
