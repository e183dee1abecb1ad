"""Which layers of a GGUF file's model are recurrent: by a list, by the distance of the others, or by the number of
their key-value heads, of which a recurrent layer has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf.written import Value
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_INTERVAL, _LIST = "full_attention_interval", "attention.recurrent_layers"
RECURRENT_LAYER_KEYS = (_INTERVAL, _LIST)
"""Metadata by their names without the architecture's."""
KEY_VALUE_HEADS = "attention.head_count_kv"
_USUAL_INTERVAL = 4  # llama.cpp's, for files that say none


def recurrent_layers(file: GGUFFile, architecture: str, layers: int) -> list[bool]:
    """By true for each recurrent layer, where the file says so, else by the interval of the others. Raises StageError
    for a list of another length."""
    key = f"{architecture}.{_LIST}"
    recurrent = file.metadata.get(key)
    if recurrent is None:
        interval = file.integer(f"{architecture}.{_INTERVAL}", _USUAL_INTERVAL)
        if interval < 1:
            raise StageError(f'{file.path}: the metadata "{architecture}.{_INTERVAL}" is {interval}')
        return _at_interval(interval, layers)
    if not isinstance(recurrent, list) or len(recurrent) != layers or not all(each in (0, 1) for each in recurrent):
        raise StageError(f'{file.path}: the metadata "{key}" has to say true or false for each of {layers} layers')
    return [bool(each) for each in recurrent]


def recurrent_layers_metadata(recurrent: Sequence[bool]) -> dict[str, Value]:
    """The inverse of `recurrent_layers`, by an interval where there is one."""
    interval = list(recurrent).index(False) + 1 if False in recurrent else 0
    if interval and list(recurrent) == _at_interval(interval, len(recurrent)):
        return {_INTERVAL: interval}
    return {_LIST: tuple(recurrent)}


def key_value_heads_of_layers(file: GGUFFile, architecture: str) -> tuple[list[bool], int]:
    """Which layers are recurrent, and how many key-value heads the others have. Raises StageError where these differ in
    that, and for a list of another length."""
    key, layers = f"{architecture}.{KEY_VALUE_HEADS}", file.integer(f"{architecture}.block_count")
    found = file.metadata.get(key)
    heads = file.integers(key) if isinstance(found, list) else [file.integer(key)] * min(layers, 1 << 12)
    others = {each for each in heads if each}
    if len(heads) != layers or len(others) > 1:
        raise StageError(
            f'{file.path}: the metadata "{key}" has to be one number for all of {layers} layers with attention, '
            "and 0 for each of the others"
        )
    return [each == 0 for each in heads], next(iter(others), 0)


def _at_interval(interval: int, layers: int) -> list[bool]:
    return [(number + 1) % interval != 0 for number in range(layers)]
