"""Numbers of a GGUF file's metadata, which are float32 where a `config.json` has decimals."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile


def number_below(file: GGUFFile, architecture: str, key: str, default: float) -> float:
    """The number of a key below the architecture's name; 0, which stands for none in llama.cpp, is the default."""
    return shortest_decimal(file.number(f"{architecture}.{key}", 0.0)) or default


def shortest_decimal(number: float) -> float:
    """The shortest decimal that rounds to the same float32: 1e-05, where the file's bits say 9.99999974e-06. A number
    beyond the largest float32 stays as it is."""
    try:
        (exact,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return number
    for digits in range(1, 10):
        decimal = float(f"{exact:.{digits}g}")
        if _is_float32(decimal, exact):
            return decimal
    return float(exact)


def _is_float32(decimal: float, exact: float) -> bool:
    """Whether a decimal rounds to that float32; one beyond the largest rounds to none."""
    try:
        return struct.pack("<f", decimal) == struct.pack("<f", exact)
    except OverflowError:
        return False
