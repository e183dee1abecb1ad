"""The Ministral family: a llama whose layers all have a sliding window, or some of them.

Defaults are those of transformers' `MinistralConfig` where a `config.json` leaves a field out.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder, read_limits
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.layer_types import (
    FULL,
    SLIDING,
    read_layer_types,
    read_window,
    with_windows,
)
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel

_DEFAULTS: dict[str, object] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
}


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    config = read_decoder(reader)
    limits = read_limits(reader)
    default = [SLIDING if reader.has("sliding_window") else FULL] * config.num_layers
    types = read_layer_types(reader, layers=config.num_layers, default=default)
    window = read_window(reader, types)
    if set(types) == {SLIDING}:  # then the cache need not keep what has left the window
        limits = replace(limits, sliding_window=window)
        own = {"sliding_window_size": None, "attention_sink_size": None}
        return decoder_model(reader, config, CheckpointLayout(), limits=limits, own=own)
    return decoder_model(reader, with_windows(config, types, window), CheckpointLayout(), limits=limits)


FAMILY = Family(
    name="ministral",
    models="Ministral",
    model_types=("ministral",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf_names={"ministral": "llama"},
)
