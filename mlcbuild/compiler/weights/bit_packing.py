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


def packed(integers: Array, bits: int) -> Array:
    """(rows, n) uint8 below 2^bits → (rows, ⌈n · bits / 32⌉) uint32, for bits that divide 32; the inverse of
    `unpacked`."""
    lanes = WORD_BITS // bits
    rows, count = integers.shape
    whole = np.zeros((rows, -(-count // lanes) * lanes), np.uint8)
    whole[:, :count] = integers
    bytes_of = whole.reshape(rows, -1, 8 // bits)
    filled = np.zeros(bytes_of.shape[:2], np.uint8)
    for place in range(8 // bits):
        filled |= bytes_of[:, :, place] << np.uint8(place * bits)
    words: Array = filled.view("<u4")
    return words
