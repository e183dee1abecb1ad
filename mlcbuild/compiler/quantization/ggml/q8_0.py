"""Blocks of ggml's Q8_0 in NumPy, bit for bit what llama.cpp makes of the same numbers (`quantize_row_q8_0_ref`).

For 32 numbers w of a row, in float32:

    d = max|w| / 127                  stored in float16
    q = round(w · (1 / d))            ties away from zero; of a signed byte
    w' = q · d                        with the d that is stored

so |w' - w| is at most half a step of d, and 127 times how far the stored d is from d: half of float16's epsilon of d,
or half of its smallest number where that is more.
"""

from __future__ import annotations

import numpy as np

from mlcbuild.compiler.weights.tensor import Array

_LARGEST = 127


def blocks(numbers: Array) -> Array:
    """Blocks (n, 34) uint8 of numbers (n, 32) float32."""
    scales = np.abs(numbers).max(axis=1) / np.float32(_LARGEST)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(1) / scales
    inverse[~np.isfinite(inverse)] = 0
    return joined(scales.astype("<f2"), _rounded(numbers * inverse[:, np.newaxis]).astype(np.int8))


def joined(scales: Array, integers: Array) -> Array:
    """Blocks (n, 34) of scales (n,) float16 and integers (n, 32) int8."""
    found = np.empty((len(scales), 2 + integers.shape[1]), np.uint8)
    found[:, :2] = np.ascontiguousarray(scales, "<f2").view(np.uint8).reshape(-1, 2)
    found[:, 2:] = integers.view(np.uint8)
    return found


def bound(numbers: Array) -> Array:
    """How far what blocks stand for may be from numbers (n, 32), in float64, without the rounding of float32."""
    scale = np.abs(numbers.astype(np.float64)).max(axis=1, keepdims=True) / _LARGEST
    half = np.finfo(np.float16)
    off = np.maximum(scale * float(half.eps), float(half.smallest_subnormal)) / 2
    return np.broadcast_to(scale / 2 + _LARGEST * off, numbers.shape)


def _rounded(numbers: Array) -> Array:
    magnitudes = np.abs(numbers)
    whole = np.floor(magnitudes)
    rounded: Array = np.copysign(whole + (magnitudes - whole >= np.float32(0.5)), numbers)
    return rounded
