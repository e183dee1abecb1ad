"""Integers and scales as blocks of ggml's types Q4_0 and Q8_0 (`block_q4_0` and `block_q8_0` in ggml-common.h).

Both hold 32 numbers: a float16 scale d, then the integers. Q4_0 has (q - 8) d, and the integers i and i + 16 are the
low and the high half of byte i. Q8_0 has q d, with signed bytes.
"""

from __future__ import annotations

import numpy as np

from mlcbuild.compiler.formats.exact_forms import GROUP
from mlcbuild.compiler.formats.group_integers import offset_integers
from mlcbuild.compiler.weights.tensor import Array

BLOCK_BYTES = {4: 2 + GROUP // 2, 8: 2 + GROUP}


def blocks_of(integers: Array, scales: Array, *, bits: int) -> Array:
    """Blocks (…, groups), each an element of so many bytes, of integers (…, columns) that stand for
    (q - 2^(bits - 1) + 1) scale, and scales (…, groups) in float16."""
    codes, signed = offset_integers(integers, scales, bits=bits)
    shifted, signed = codes.reshape(*scales.shape, GROUP), signed.astype("<f2", copy=False)
    blocks = np.empty((*scales.shape, BLOCK_BYTES[bits]), np.uint8)
    blocks[..., :2] = signed[..., np.newaxis].view(np.uint8)
    if bits == 4:
        blocks[..., 2:] = shifted[..., : GROUP // 2] | (shifted[..., GROUP // 2 :] << np.uint8(4))
    else:
        blocks[..., 2:] = shifted - np.uint8(128)  # the byte of the signed number
    return blocks.view(f"V{BLOCK_BYTES[bits]}")[..., 0]
