"""Sections of a rotary embedding in the metadata of GGUF files: how many pairs of a head turn by a token's place in
time, in height and in width. The pairs take turns, and in a text the three places are one number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf.config import head_size
from mlcbuild.compiler.models.gguf.written import Value
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

SECTIONS = "rope.dimension_sections"
"""The key by its name without the architecture's."""
_PLACES = 3


def check_sections(file: GGUFFile, architecture: str) -> None:
    """Raises StageError where a pair is in no section: llama.cpp does not turn it."""
    key = f"{architecture}.{SECTIONS}"
    sections = file.metadata.get(key)
    pairs = file.integer(f"{architecture}.rope.dimension_count", head_size(file, architecture)) // 2
    sizes = [each for each in sections if type(each) is int] if isinstance(sections, list) else []
    if len(sizes) != _PLACES + 1 or any(pair // _PLACES >= sizes[pair % _PLACES] for pair in range(pairs)):
        raise StageError(
            f'{file.path}: the metadata "{key}" has to be 4 numbers, by which each of {pairs} pairs of a head turns'
        )


def sections_metadata(rotated: int) -> dict[str, Value]:
    """Sections that have each pair of the `rotated` elements of a head; the fourth, for further places, has none."""
    pairs = rotated // 2
    return {SECTIONS: (*(len(range(place, pairs, _PLACES)) for place in range(_PLACES)), 0)}
