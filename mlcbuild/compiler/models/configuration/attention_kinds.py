"""Fields that say which layers see all of the text, and which the tokens of a window."""

from __future__ import annotations

from mlcbuild.compiler.models.config import ConfigReader

FULL = "full_attention"
_MAX_WINDOW_LAYERS = 28  # as transformers has it in Qwen2Config and its like


def check_full_attention(reader: ConfigReader, *, layers: int) -> None:
    """Raise StageError unless every layer sees all of the text, by the fields of Qwen2 and its like: layer_types,
    use_sliding_window, sliding_window and max_window_layers."""
    windows = reader.boolean("use_sliding_window", default=False)
    if reader.has("layer_types"):  # Transformers reads max_window_layers only without this field.
        if reader.document["layer_types"] != [FULL] * layers:
            raise reader.fail("layer_types", f'has to be "{FULL}" for each of the {layers} layers')
    elif windows and reader.document.get("sliding_window", 4096) is not None:
        first = reader.integer("max_window_layers", low=0, high=1 << 12, default=_MAX_WINDOW_LAYERS)
        if first < layers:
            raise reader.fail(
                "use_sliding_window",
                f"is true, so layers from number {first} on have a sliding window, which is not supported",
            )
