"""Integers of 4 bits with zero points in NumPy.

AWQ chooses scales with a calibration that a checkpoint has behind it; integers of such a checkpoint are stored as they
are (`AwqEncoder.store`). Weights without are quantized by the range of each group w, with zero in it:

    low, high = min(w, 0), max(w, 0)
    scale = (high - low) / 15                              rounded to the model's dtype
    zero  = round(-low / scale)
    q     = min(max(round(w / scale) + zero, 0), 15)
    w'    = (q - zero) * scale                             rounded to the model's dtype

Quotients are float32; ties go to the even integer. A scale of 0 has the zero point 0 and stores zeros.

How far w' is from w: the quotient is off by 1/2. It is cut only where both ends of the range are rounded up, by at most
1/2 and what the scale's rounding makes of the range, 15 eps / 2. The product's rounding is another 15 eps / 2. For a
subnormal scale, whose rounding is eta / 2, the smallest positive number, these become 15 eta / 2 and eta / 2:

    |w' - w| <= scale (1/2 + 16 eps) + 9 eta
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from mlcbuild.compiler.quantization.awq.scheme import BITS, LANES, LARGEST, PLACES, AwqScheme
from mlcbuild.compiler.quantization.integer_grid import IntegerGrid
from mlcbuild.compiler.quantization.integers import regrouped, whole_groups
from mlcbuild.compiler.quantization.scheme import Weight
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.tensor import Array, dtype_of


class AwqEncoder:
    """The `GridEncoder` of integers with zero points."""

    def __init__(self, scheme: AwqScheme) -> None:
        self.scheme = scheme

    def encode(self, weight: Weight, numbers: Array) -> tuple[Array, ...]:
        if not self.scheme.covers(weight.role):
            return (numbers,)
        *rows, columns = numbers.shape
        wide = whole_groups(numbers.astype(np.float32), self.scheme.group_size)
        wide = wide.reshape(*rows, -1, self.scheme.group_size)
        scales, zeros = self._of_range(wide.min(axis=-1), wide.max(axis=-1))
        stored = scales.astype(np.float32)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            codes = np.rint(wide / stored[..., np.newaxis]) + zeros[..., np.newaxis]
        codes = np.nan_to_num(codes, nan=0.0, posinf=0.0, neginf=0.0).clip(0, LARGEST)
        return self._packed(codes.astype(np.uint8).reshape(*rows, -1)[..., :columns], zeros, scales)

    def grid(self, weight: Weight) -> IntegerGrid | None:
        if not self.scheme.covers(weight.role):
            return None
        return IntegerGrid(
            group_size=self.scheme.group_size,
            largest=LARGEST,
            dtype=dtype_of(self.scheme.model_dtype),
            of_range=self._of_range,
        )

    def store(self, weight: Weight, matrix: IntegerMatrix) -> tuple[Array, ...] | None:
        if not self.scheme.covers(weight.role) or matrix.codes.max() > LARGEST or matrix.zeros.max() > LARGEST:
            return None
        columns = matrix.codes.shape[-1]
        found = regrouped(
            matrix,
            group_size=self.scheme.group_size,
            groups=self.scheme.groups(columns),
            dtype=dtype_of(self.scheme.model_dtype),
            largest=LARGEST,
        )
        return None if found is None else self._packed(matrix.codes, *found)

    def decode(self, weight: Weight, stored: Sequence[Array]) -> Array:
        if not self.scheme.covers(weight.role):
            return stored[0]
        codes, zeros = (unpacked(words) for words in stored[:2])
        scales = np.swapaxes(stored[2], -1, -2)
        columns = codes.shape[-1]
        group = np.arange(columns) // self.scheme.group_size
        differences = codes.astype(np.float32) - zeros[..., group].astype(np.float32)
        numbers: Array = (differences * scales[..., group].astype(np.float32)).astype(scales.dtype)
        return numbers

    def error_bound(self, weight: Weight, numbers: Array) -> Array:
        if not self.scheme.covers(weight.role):
            return np.zeros(numbers.shape)
        limits = ml_dtypes.finfo(numbers.dtype)  # type: ignore[no-untyped-call]
        *rows, columns = numbers.shape
        group = self.scheme.group_size
        wide = whole_groups(numbers.astype(np.float64), group).reshape(*rows, -1, group)
        scales = (np.maximum(wide.max(axis=-1), 0) - np.minimum(wide.min(axis=-1), 0)) / LARGEST
        bound: Array = scales * (0.5 + 16 * float(limits.eps)) + 9 * float(limits.smallest_subnormal)
        return np.repeat(bound, group, axis=-1)[..., :columns]

    def _of_range(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Scales and zeros of groups whose least and largest numbers, in float32, are given."""
        low = np.minimum(low, 0)
        scales = ((np.maximum(high, 0) - low) / np.float32(LARGEST)).astype(dtype_of(self.scheme.model_dtype))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            zeros = np.rint(-low / scales.astype(np.float32))
        return scales, np.nan_to_num(zeros, nan=0.0, posinf=0.0).clip(0, LARGEST).astype(np.uint8)

    def _packed(self, codes: Array, zeros: Array, scales: Array) -> tuple[Array, ...]:
        """What is stored of codes (…, out, in), zeros and scales (…, out, groups)."""
        return _words(codes), _words(zeros), np.ascontiguousarray(np.swapaxes(scales, -1, -2))


def _words(integers: Array) -> Array:
    """(…, out, n) of integers below 16 → (…, n, out / 8) uint32."""
    by_word = np.swapaxes(integers, -1, -2)
    words = np.zeros((*by_word.shape[:-1], by_word.shape[-1] // LANES), np.uint32)
    for output, place in enumerate(PLACES):
        words |= by_word[..., output::LANES].astype(np.uint32) << np.uint32(BITS * place)
    return words


def unpacked(words: Array) -> Array:
    """The integers (…, out, n), uint32, of words (…, n, out / 8): the inverse of `_words`."""
    shifts = np.array([BITS * place for place in PLACES], np.uint32)
    lanes = (words[..., np.newaxis] >> shifts) & np.uint32(LARGEST)
    return np.ascontiguousarray(np.swapaxes(lanes.reshape(*words.shape[:-1], -1), -1, -2))
