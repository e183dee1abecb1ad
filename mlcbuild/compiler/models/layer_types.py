"""Which layers of a decoder see all of the text, and which the latest tokens alone: the field `layer_types`, and the
fields that older configurations have instead.

A layer's type is the name of its kind (`decoder.LayerKind`). Where all layers are of the type that sees all, a decoder
has no kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mlcbuild.compiler.models.config import MAX_CONTEXT, ConfigReader
from mlcbuild.compiler.models.decoder import AttentionConfig, DecoderConfig, LayerKind
from mlcbuild.compiler.models.rotary import RotaryEmbedding, read_rotary

FULL = "full_attention"
SLIDING = "sliding_attention"
_MAX_WINDOW_LAYERS = 28  # as transformers has it in Qwen2Config and its like


def read_layer_types(reader: ConfigReader, *, layers: int, default: Sequence[str]) -> tuple[str, ...]:
    """The type of each layer: what `layer_types` says, else the default. Raises StageError for another number of types,
    and for a type that is not known."""
    if not reader.has("layer_types"):
        return tuple(default)
    found = reader.document["layer_types"]
    if not isinstance(found, list) or len(found) != layers:
        raise reader.fail("layer_types", f"has to be a list of {layers} types, one for each layer")
    for name in found:
        if name not in (FULL, SLIDING):
            raise reader.fail("layer_types", f'has the type "{name}"; known: "{FULL}", "{SLIDING}"')
    return tuple(found)


def every_nth_is_full(n: int, *, layers: int) -> tuple[str, ...]:
    """Of each n layers the last sees all of the text."""
    return tuple(SLIDING if (number + 1) % n else FULL for number in range(layers))


def from_a_layer_on(reader: ConfigReader, *, layers: int) -> tuple[str, ...]:
    """The types by the fields of Qwen2 and its like: with `use_sliding_window` and a `sliding_window`, layers from
    number `max_window_layers` on have a window."""
    first = layers
    if reader.boolean("use_sliding_window", default=False) and reader.has("sliding_window"):
        first = reader.integer("max_window_layers", low=0, high=1 << 12, default=_MAX_WINDOW_LAYERS)
    return tuple(FULL if number < first else SLIDING for number in range(layers))


def read_window(reader: ConfigReader, types: Sequence[str]) -> int:
    """The field `sliding_window`, in tokens; 0 where no layer has one. Raises StageError where a layer needs one and
    there is none."""
    if SLIDING not in types:
        return 0
    if not reader.has("sliding_window"):
        raise reader.fail("sliding_window", f'is missing; layers of the type "{SLIDING}" need it')
    return reader.integer("sliding_window", low=1, high=MAX_CONTEXT)


def read_rotaries(reader: ConfigReader, *, head_dim: int, bases: Mapping[str, float]) -> dict[str, RotaryEmbedding]:
    """The rotary embedding of each type of `bases`, which has the base of one that `rope_parameters` says nothing of.
    `rope_scaling` is that of layers that see all.

    Raises StageError for parameters that are not by type.
    """
    tables: dict[str, Mapping[str, object]] = {name: {} for name in bases}
    if reader.document.get("rope_parameters") not in (None, {}):
        by_type = reader.table("rope_parameters")
        for name in by_type.document:
            if name not in bases:
                raise reader.fail(
                    "rope_parameters", f'has "{name}"; it has to have types of layers: {", ".join(bases)}'
                )
            if by_type.has(name):
                tables[name] = by_type.table(name).document
    if reader.document.get("rope_scaling") not in (None, {}):
        tables[FULL] = {**tables[FULL], **reader.table("rope_scaling").document}
    shared = ("partial_rotary_factor", "original_max_position_embeddings")
    outside = {name: reader.document[name] for name in shared if name in reader.document}
    positions = reader.integer("max_position_embeddings", low=1, high=MAX_CONTEXT)
    return {
        name: read_rotary(
            ConfigReader(outside | {"rope_theta": base, "rope_parameters": tables[name]}, f'{reader.where}, "{name}"'),
            max_position_embeddings=positions,
            head_dim=head_dim,
        )
        for name, base in bases.items()
    }


def window_fields(config: DecoderConfig) -> dict[str, object]:
    """What a `model_config` says of layers that differ: the fields of Hugging Face."""
    if not config.rules.window:
        return {}
    return {"sliding_window": config.rules.window, "layer_types": list(config.kinds_of_layers)}


def with_windows(
    config: DecoderConfig,
    types: Sequence[str],
    window: int,
    *,
    rotaries: Mapping[str, RotaryEmbedding] | None = None,
) -> DecoderConfig:
    """A decoder whose layers of the type that slides see `window` tokens. Layers of a type that `rotaries` names rotate
    so; where they differ, the model rotates and the cache does not."""
    attention = config.attention

    def of(name: str) -> AttentionConfig:
        rotary = (rotaries or {}).get(name, attention.rotary)
        return replace(attention, rotary=rotary, window=window if name == SLIDING else 0)

    names = sorted(set(types))
    found = {name: of(name) for name in names}
    if len({each.rotary for each in found.values()}) > 1:
        found = {name: replace(each, rotary=each.rotary.in_model(each.head_dim)) for name, each in found.items()}
    if names == [FULL]:
        return replace(config, attention=found[FULL])
    return replace(
        config,
        attention=found.get(FULL, found[names[0]]),
        kinds=tuple(LayerKind(name=name, attention=found[name]) for name in names),
        kinds_of_layers=tuple(types),
    )
