"""Arithmetic of float16 numbers on whole arrays.

NumPy converts float16 numbers one after the other, which takes longer than all else that quantizing does. A quotient
or a sum of two float16 numbers, computed in float32 and rounded to float16, is the correctly rounded one: float32 has
the 2 · 11 + 2 bits that this takes.
"""

from __future__ import annotations

import functools

import numpy as np

from mlcbuild.compiler.weights.tensor import Array

_DROPPED = 13  # bits of a float32's fraction that a float16 does not have


def widened(numbers: Array) -> Array:
    """Numbers of a model's type in float32."""
    if numbers.dtype == np.float16:
        return _every_number().take(numbers.view(np.uint16))
    return numbers.astype(np.float32, copy=False)


def round_fractions(numbers: Array) -> None:
    """Round float32 numbers in place to the 11 bits of float16, ties to even.

    From 2⁻¹⁴ to 65504 these are the float16 numbers. Smaller ones keep more bits than float16 has of them, and larger
    ones do not become infinite.
    """
    bits = numbers.view(np.uint32)
    odd = bits >> np.uint32(_DROPPED)
    odd &= np.uint32(1)
    bits += odd
    bits += np.uint32((1 << (_DROPPED - 1)) - 1)
    bits &= np.uint32(0xFFFFFFFF ^ ((1 << _DROPPED) - 1))


@functools.cache
def _every_number() -> Array:
    """The float32 numbers of all float16 ones, by their bits."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
