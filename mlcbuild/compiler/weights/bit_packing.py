"""Integers of a few bits that fill words of 32 bits from their low end, as quantized checkpoints have them."""

from __future__ import annotations

import numpy as np

from mlcbuild.compiler.weights.tensor import Array

WORD_BITS = 32


def unpacked(words: Array, bits: int) -> Array:
    """(…, words) of 32 bits → (…, words · 32 / bits) uint8. Where the bits do not divide 32, an integer may begin in
    one word and end in the next."""
    *rows, count = words.shape
    if WORD_BITS % bits == 0:
        shifts = np.arange(0, WORD_BITS, bits, dtype=np.uint32)
        lanes = (words.view(np.uint32)[..., np.newaxis] >> shifts) & np.uint32((1 << bits) - 1)
        return lanes.astype(np.uint8).reshape(*rows, -1)
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    whole = count * WORD_BITS // bits
    integers = np.packbits(stream[..., : whole * bits].reshape(*rows, whole, bits), axis=-1, bitorder="little")
    return integers[..., 0]
