"""The SmolLM3 family: a llama of which every fourth layer does not rotate.

Defaults are those of transformers' `SmolLM3Config` where a `config.json` leaves a field out.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.checkpoint_layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel
from mlcbuild.compiler.models.layer_types import FULL, SLIDING, read_layer_types, read_window, with_attentions
from mlcbuild.compiler.models.rotary import RotaryForm

_DEFAULTS: dict[str, object] = {
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "rope_theta": 2000000.0,
}


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    bias = reader.boolean("attention_bias", default=False)
    mlp_bias = reader.boolean("mlp_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias)
    rotates = _rotating(reader, config.num_layers)
    windows = reader.boolean("use_sliding_window", default=False) and reader.has("sliding_window")
    default = [SLIDING if windows and not each else FULL for each in rotates]
    types = read_layer_types(reader, layers=config.num_layers, default=default)
    if SLIDING in types and not windows:
        raise reader.fail("layer_types", f'has "{SLIDING}", but "use_sliding_window" is not true')
    window, attention = read_window(reader, types), config.attention
    still = replace(attention.rotary, form=RotaryForm.NONE, table=None)
    layers = [
        (
            name if turns else f"{name} without rotation",
            replace(attention, window=window if name == SLIDING else 0, rotary=attention.rotary if turns else still),
        )
        for name, turns in zip(types, rotates, strict=True)
    ]
    return decoder_model(
        reader,
        with_attentions(config, layers),
        CheckpointLayout(),
        own={"no_rope_layers": [int(each) for each in rotates]},
    )


def _rotating(reader: ConfigReader, layers: int) -> list[bool]:
    """Whether each layer rotates: `no_rope_layers` has a 1 for one that does."""
    name = "no_rope_layers"
    if not reader.has(name):
        nth = reader.integer("no_rope_layer_interval", low=1, high=1 << 12, default=4)
        return [(number + 1) % nth != 0 for number in range(layers)]
    found = reader.document[name]
    if not isinstance(found, list) or len(found) < layers or any(each not in (0, 1) for each in found):
        raise reader.fail(name, f"has to be a list of {layers} numbers, 1 for a layer that rotates and 0 for another")
    return [bool(each) for each in found[:layers]]


FAMILY = Family(
    name="smollm3",
    models="SmolLM3",
    model_types=("smollm3",),
    configuration=DecoderConfig,
    resolve=resolve,
)
