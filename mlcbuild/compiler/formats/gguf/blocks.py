"""Integers and scales as blocks of ggml's types Q4_0 and Q8_0 (`block_q4_0` and `block_q8_0` in ggml-common.h).

Both hold 32 numbers: a float16 scale d, then the integers. Q4_0 has (q - 8) d, and the integers i and i + 16 are the
low and the high half of byte i. Q8_0 has q d, with signed bytes.
"""

from __future__ import annotations

import numpy as np

from mlcbuild.compiler.formats.exact_forms import GROUP
from mlcbuild.compiler.weights.tensor import Array

BLOCK_BYTES = {4: 2 + GROUP // 2, 8: 2 + GROUP}


def blocks_of(integers: Array, scales: Array, *, bits: int) -> Array:
    """Blocks (…, groups), each an element of so many bytes, of integers (…, columns) that stand for
    (q - 2^(bits - 1) + 1) scale, and scales (…, groups) in float16.

    Integers of a checkpoint that are kept may be 2^bits - 1, one more than a scheme makes of numbers: q + 1 has no room
    there. Then the scale's sign is turned, and the integers are 2^bits - 1 - q.
    """
    groups = integers.reshape(*scales.shape, GROUP)
    top = np.uint8((1 << bits) - 1)
    turned = (groups == top).any(axis=-1)
    shifted = np.where(turned[..., np.newaxis], top - groups, groups + np.uint8(1))
    signed = np.where(turned, -scales, scales).astype("<f2", copy=False)
    blocks = np.empty((*scales.shape, BLOCK_BYTES[bits]), np.uint8)
    blocks[..., :2] = signed[..., np.newaxis].view(np.uint8)
    if bits == 4:
        blocks[..., 2:] = shifted[..., : GROUP // 2] | (shifted[..., GROUP // 2 :] << np.uint8(4))
    else:
        blocks[..., 2:] = shifted - np.uint8(128)  # the byte of the signed number
    return blocks.view(f"V{BLOCK_BYTES[bits]}")[..., 0]
