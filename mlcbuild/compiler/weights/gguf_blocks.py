"""Blocks of the quantized types of GGUF files as numbers.

The `gguf` library has most types; the rest are those of ggml (`dequantize_row_*` in src/ggml-quants.c).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from mlcbuild.compiler.weights.tensor import Array

if TYPE_CHECKING:
    from gguf.constants import GGMLQuantizationType


def dequantize_blocks(blocks: Array, kind: GGMLQuantizationType) -> Array | None:
    """The numbers (float32) of blocks, uint8 of shape (blocks, bytes of a block). None for a type that holds no
    weights, such as integers."""
    from gguf.quants import dequantize

    if kind.name in _OWN:
        return _OWN[kind.name](blocks)
    try:
        # Scales of a damaged file may be no numbers, or too large: whoever reads the tensor tells them.
        with np.errstate(over="ignore", invalid="ignore"):
            numbers: Array = dequantize(blocks, kind)
    except NotImplementedError:
        return None
    return numbers


def _q1_0(blocks: Array) -> Array:
    """A float16 scale and 128 bits, lowest first: the scale, or its negative for 0."""
    scale = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype("<f4")
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little")
    return np.where(bits == 1, scale, -scale)


def _q8_k(blocks: Array) -> Array:
    """A float32 scale and 256 signed bytes; sums of 16 of them follow, for products."""
    scale = np.ascontiguousarray(blocks[:, :4]).view("<f4")
    with np.errstate(over="ignore", invalid="ignore"):
        numbers: Array = scale * blocks[:, 4:260].view(np.int8).astype("<f4")
    return numbers


_OWN: Mapping[str, Callable[[Array], Array]] = {"Q1_0": _q1_0, "Q8_K": _q8_k}
