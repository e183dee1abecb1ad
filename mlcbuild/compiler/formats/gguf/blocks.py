"""Integers and scales as blocks of ggml's types Q4_0 and Q8_0 (`block_q4_0` and `block_q8_0` in ggml-common.h).

Both hold 32 numbers: a float16 scale d, then the integers. Q4_0 has (q - 8) d, and the integers i and i + 16 are the
low and the high half of byte i. Q8_0 has q d, with signed bytes.
"""

from __future__ import annotations

import numpy as np

from mlcbuild.compiler.formats.group_integers import offset_integers
from mlcbuild.compiler.weights.block_types import BLOCK_TYPES, BlockType
from mlcbuild.compiler.weights.tensor import Array

_TYPES = {4: BLOCK_TYPES["Q4_0"], 8: BLOCK_TYPES["Q8_0"]}


def blocks_of(integers: Array, scales: Array, *, bits: int) -> Array:
    """Blocks (…, groups), each an element of so many bytes, of integers (…, columns) that stand for
    (q - 2^(bits - 1) + 1) scale, and scales (…, groups) in float16."""
    kind = _TYPES[bits]
    codes, signed = offset_integers(integers, scales, bits=bits)
    shifted, signed = codes.reshape(*scales.shape, kind.elements), signed.astype("<f2", copy=False)
    blocks = np.empty((*scales.shape, kind.size), np.uint8)
    blocks[..., :2] = signed[..., np.newaxis].view(np.uint8)
    if bits == 4:
        half = kind.elements // 2
        blocks[..., 2:] = shifted[..., :half] | (shifted[..., half:] << np.uint8(4))
    else:
        blocks[..., 2:] = shifted - np.uint8(128)  # the byte of the signed number
    return as_elements(blocks.reshape(*scales.shape[:-1], -1), kind)


def as_elements(rows: Array, kind: BlockType) -> Array:
    """Rows of blocks (…, bytes), uint8, as (…, blocks), of which each is an element of so many bytes."""
    return np.ascontiguousarray(rows).view(f"V{kind.size}")
