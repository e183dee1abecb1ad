"""The fields of a `config.json` that tell which layers have a sliding window, from the metadata of a GGUF file.

Many files say how long the window is, and not which layers have it: llama.cpp knows that by the architecture. Where a
file has a pattern, it is a number n, by which the last of each n layers sees all, or true for each layer that slides.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.configuration.layer_types import FULL, SLIDING, every_nth_is_full
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

WINDOW = "attention.sliding_window"
WINDOW_PATTERN = "attention.sliding_window_pattern"
WINDOW_BASE = "rope.freq_base_swa"
_MOST_LAYERS = 1 << 12
WINDOW_KEYS = (WINDOW, WINDOW_PATTERN, WINDOW_BASE)
"""Metadata by their names without the architecture's."""


def window_document(file: GGUFFile, architecture: str, *, every: int, window: int = 0) -> dict[str, object]:
    """`sliding_window` and `layer_types`: of each `every` layers the last sees all, if the file has no pattern.
    `window` is the length for a file that says none. Without any, all layers see all.

    Raises StageError for a pattern of another form, and for a number of layers that no model has.
    """
    found, layers = file.integer(f"{architecture}.{WINDOW}", window), file.integer(f"{architecture}.block_count")
    if not 1 <= layers <= _MOST_LAYERS:
        raise StageError(f'{file.path}: the metadata "{architecture}.block_count" is {layers}')
    if found == 0:
        return {"layer_types": [FULL] * layers}
    return {"sliding_window": found, "layer_types": list(_types(file, architecture, layers, every))}


def check_one_base(file: GGUFFile, architecture: str) -> None:
    """Raise StageError where layers with a window have a rotary base of their own, which the model does not have."""
    key = f"{architecture}.{WINDOW_BASE}"
    base = file.number(f"{architecture}.rope.freq_base", 10000.0)
    if not math.isclose(file.number(key, base), base, rel_tol=1e-6):
        raise StageError(f"{file.path}: {key} is {file.number(key):g}; here all layers have the same, {base:g}")


def _types(file: GGUFFile, architecture: str, layers: int, every: int) -> tuple[str, ...]:
    key = f"{architecture}.{WINDOW_PATTERN}"
    pattern = file.metadata.get(key, every)
    if isinstance(pattern, list):
        if len(pattern) != layers or not all(slides in (0, 1) for slides in pattern):
            raise StageError(f'{file.path}: the metadata "{key}" has to say true or false for each of {layers} layers')
        return tuple(SLIDING if slides else FULL for slides in pattern)
    number = file.integer(key, every)
    if number < 0:
        raise StageError(f'{file.path}: the metadata "{key}" is {number}')
    return every_nth_is_full(number, layers=layers) if number else (SLIDING,) * layers
