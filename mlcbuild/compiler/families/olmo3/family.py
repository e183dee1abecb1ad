"""The OLMo 3 family: norms behind attention and feed-forward, norms of all queries and of all keys, and a sliding
window in three of four layers.

Defaults are those of transformers' `Olmo3Config` where a `config.json` leaves a field out.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, NormScope, QueryKeyNorm, Wiring, read_decoder
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.layer_types import (
    FULL,
    SLIDING,
    every_nth_is_full,
    read_layer_types,
    read_rotaries,
    read_window,
    with_windows,
)
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel

_BASE = 500000.0
_DEFAULTS: dict[str, object] = {
    "vocab_size": 50304,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "sliding_window": 4096,
}


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias, rotary_form=RotaryForm.NONE)
    norm = QueryKeyNorm(norm=config.norm, scope=NormScope.ALL_HEADS)
    config = replace(config, attention=replace(config.attention, query_key_norm=norm), wiring=Wiring.NORM_AFTER)
    layers = config.num_layers
    types = read_layer_types(reader, layers=layers, default=every_nth_is_full(4, layers=layers))
    # Transformers takes a base outside of the types' own parameters for layers that see all.
    bases = {FULL: reader.number("rope_theta", low=1.0, high=1e12, default=_BASE), SLIDING: _BASE}
    rotaries = read_rotaries(reader, head_dim=config.attention.head_dim, bases=bases)
    config = with_windows(config, types, read_window(reader, types), rotaries=rotaries)
    return decoder_model(reader, config, CheckpointLayout())


FAMILY = Family(
    name="olmo3",
    models="OLMo 3",
    model_types=("olmo3",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf_names={"olmo3": "olmo2"},
)
