"""Layers that see a chunk of the text and rotate, and others that see all, do not rotate and have a temperature of
their own: the fields that Llama 4's configurations have for them."""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import (
    DecoderConfig,
    TemperatureTuning,
    normed_behind_rotation,
)
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.config import MAX_CONTEXT, ConfigReader
from mlcbuild.compiler.models.configuration.layer_types import (
    CHUNKED,
    FULL,
    read_layer_types,
    read_turned_layers,
    with_attentions,
)


def with_chunked_layers(reader: ConfigReader, config: DecoderConfig) -> DecoderConfig:
    """The decoder with such layers, of which there may be of one sort alone. Raises StageError for layers with chunks
    of no length."""
    if reader.value("no_rope_layers") == []:
        reader = reader.without("no_rope_layers")
    layers = config.num_layers
    chunk = reader.integer("attention_chunk_size", low=1, high=MAX_CONTEXT) if reader.has("attention_chunk_size") else 0
    turned = read_turned_layers(reader, layers)
    default = [CHUNKED if each and chunk else FULL for each in turned]
    types = read_layer_types(reader, layers=layers, default=default, limited=CHUNKED)
    if CHUNKED in types and not chunk:
        raise reader.fail("attention_chunk_size", f'is null; layers of the type "{CHUNKED}" need it')
    turning = config.attention
    still = replace(turning, rotary=replace(turning.rotary, form=RotaryForm.NONE, table=None))
    if reader.value("attn_temperature_tuning"):  # which was a number at first
        strength = reader.number("attn_scale", low=0.0, high=1e6, default=0.1)
        interval = reader.integer("floor_scale", low=1, high=MAX_CONTEXT, default=8192)
        still = replace(still, temperature=TemperatureTuning(strength=strength, interval=interval, offset=1))
    if reader.boolean("use_qk_norm", default=True):
        turning = normed_behind_rotation(turning, config.norm)
    found = []
    for name, turns in zip(types, turned, strict=True):
        attention = replace(
            turning if turns else still, window=chunk if name == CHUNKED else 0, chunked=name == CHUNKED
        )
        found.append((f"{name}, turned" if turns else name, attention))
    return with_attentions(config, found)
