"""Which layers of a decoder see all of the text, and which the latest tokens alone: the field `layer_types`, and the
fields that older configurations have instead.

A layer's type is the name of its kind (`decoder.LayerKind`). Where all layers are of one type, a decoder has no kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import AttentionConfig, DecoderConfig, LayerKind
from mlcbuild.compiler.models.architecture.rotary import RotaryEmbedding, read_rotary
from mlcbuild.compiler.models.config import MAX_CONTEXT, ConfigReader

FULL = "full_attention"
SLIDING = "sliding_attention"
CHUNKED = "chunked_attention"
LINEAR = "linear_attention"  # of a recurrence
_WINDOW, _MAX_WINDOW_LAYERS = 4096, 28  # as transformers has them in Qwen2Config and its like


def read_layer_types(
    reader: ConfigReader, *, layers: int, default: Sequence[str], limited: str = SLIDING
) -> tuple[str, ...]:
    """The type of each layer: what `layer_types` says, else the default. Layers that do not see all are `limited`.
    Raises StageError for another number of types, and for a type that is not known."""
    if not reader.has("layer_types"):
        return tuple(default)
    found = reader.document["layer_types"]
    if not isinstance(found, list) or len(found) != layers:
        raise reader.fail("layer_types", f"has to be a list of {layers} types, one for each layer")
    for name in found:
        if name not in (FULL, limited):
            raise reader.fail("layer_types", f'has the type "{name}"; known: "{FULL}", "{limited}"')
    return tuple(found)


def every_nth_is_full(n: int, *, layers: int) -> tuple[str, ...]:
    """Of each n layers the last sees all of the text."""
    return tuple(SLIDING if (number + 1) % n else FULL for number in range(layers))


def read_turned_layers(reader: ConfigReader, layers: int) -> list[bool]:
    """Whether each layer rotates, by `no_rope_layers`, which has a 1 for those that do, or every n-th does not."""
    if reader.has("no_rope_layers"):
        found = reader.value("no_rope_layers")
        if not isinstance(found, list) or len(found) != layers or not all(each in (0, 1) for each in found):
            raise reader.fail("no_rope_layers", f"has to be a list of {layers} numbers, 0 or 1")
        return [bool(each) for each in found]
    interval = reader.integer("no_rope_layer_interval", low=1, high=1 << 12, default=4)
    return [bool((layer + 1) % interval) for layer in range(layers)]


def with_windows_of_qwen(reader: ConfigReader, config: DecoderConfig, *, alternating: bool = False) -> DecoderConfig:
    """A decoder with the windows that the fields of Qwen2 and its like say. With `use_sliding_window` and a
    `sliding_window`, layers have one from number `max_window_layers` on, unless `layer_types` says which do. If they
    are `alternating`, it is every second layer before that number instead, the first among them."""
    layers = config.num_layers
    reader = reader.with_defaults(sliding_window=_WINDOW)
    slides = reader.boolean("use_sliding_window", default=False) and (alternating or reader.has("sliding_window"))
    default = [FULL] * layers
    if slides and not reader.has("layer_types"):
        bound = reader.integer("max_window_layers", low=0, high=1 << 12, default=_MAX_WINDOW_LAYERS)
        for number in range(layers):
            if (number < bound and number % 2 == 0) if alternating else number >= bound:
                default[number] = SLIDING
    types = read_layer_types(reader, layers=layers, default=default)
    if SLIDING in types and not slides:
        raise reader.fail("layer_types", f'has the type "{SLIDING}", but "use_sliding_window" is not true')
    return with_windows(config, types, read_window(reader, types))


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
    windows = [config.of_layer(number).attention.window for number in range(config.num_layers)]
    name, limited = ("attention_chunk_size", CHUNKED) if config.rules.chunked else ("sliding_window", SLIDING)
    return {name: config.rules.window, "layer_types": [limited if window else FULL for window in windows]}


def with_windows(
    config: DecoderConfig,
    types: Sequence[str],
    window: int,
    *,
    rotaries: Mapping[str, RotaryEmbedding] | None = None,
) -> DecoderConfig:
    """A decoder whose layers of the type that slides see `window` tokens. Layers of a type that `rotaries` names rotate
    so."""
    attention = config.attention
    by_type = {
        name: replace(
            attention,
            rotary=(rotaries or {}).get(name, attention.rotary),
            window=window if name == SLIDING else 0,
        )
        for name in types
    }
    return with_attentions(config, [(name, by_type[name]) for name in types])


def with_attentions(config: DecoderConfig, layers: Sequence[tuple[str, AttentionConfig]]) -> DecoderConfig:
    """A decoder whose layers are of these kinds, by name, with the attention of each. Where they do not rotate alike,
    the model rotates and the cache does not."""
    found = dict(layers)
    if len({each.rotary for each in found.values()}) > 1:
        found = {name: replace(each, rotary=each.rotary.in_model(each.head_dim)) for name, each in found.items()}
    if len(found) == 1:
        return replace(config, attention=next(iter(found.values())))
    return replace(
        config,
        attention=found[layers[-1][0]],
        kinds=tuple(LayerKind(name=name, attention=each) for name, each in found.items()),
        kinds_of_layers=tuple(name for name, _ in layers),
    )
