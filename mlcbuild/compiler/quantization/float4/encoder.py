"""Floats of 4 bits in NumPy.

MXFP4, for a group w of 32 (OCP Microscaling Formats 1.0, section 6.3; 6 is the largest float of 4 bits, and 4 its power
of two):

    scale = 2^floor(log2(max|w|)) / 4,   at least 2^-127

NVFP4, for a group w of 16 of a matrix W:

    global = max|W| / (6 · 448)          in float32
    scale  = the E4M3 nearest to max|w| / 6 / global

and of both, where scale · global (or scale) is s, q the float of 4 bits nearest to w / s, ties to even and at most 6:

    w' = q · s                           in float32, rounded to the model's type

so |w' - w| is at most s times half of the distance between floats of 4 bits at |w| / s, or how far that is beyond 6,
and the roundings of the quotient, the product and w'. Where s is zero, w' is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import ml_dtypes
import numpy as np

from mlcbuild.compiler.quantization.float4.scheme import Float4Scheme
from mlcbuild.compiler.quantization.minifloat import E2M1, E4M3
from mlcbuild.compiler.quantization.minifloat_numbers import half_step, rounded
from mlcbuild.compiler.quantization.scheme import Weight
from mlcbuild.compiler.weights.bit_packing import unpacked
from mlcbuild.compiler.weights.tensor import Array, dtype_of

_BIAS = 127
_LARGEST_POWER = 2  # 6 = 1.5 · 2^2
_NUMBERS = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
_LEAST = np.finfo(np.float32).tiny
_BLOCK_ELEMENTS = 1 << 22  # rows are done in blocks, so that temporaries stay small


class Float4Encoder:
    """The `Encoder` of floats of 4 bits."""

    def __init__(self, scheme: Float4Scheme) -> None:
        self.scheme = scheme

    def encode(self, weight: Weight, numbers: Array) -> tuple[Array, ...]:
        scheme = self.scheme
        if not scheme.covers(weight.role):
            return (numbers,)
        words, scales, *more = (np.empty(each.shape, dtype_of(each.dtype)) for each in scheme.stored(weight))
        matrices = numbers.reshape(-1, *numbers.shape[-2:])
        for number, matrix in enumerate(matrices):
            common = self._global_scale(matrix)
            if more:
                more[0].reshape(-1)[number] = common
            step = max(1, _BLOCK_ELEMENTS // max(matrix.shape[1], 1))
            for begin in range(0, len(matrix), step):
                place = slice(begin, begin + step)
                groups = self._groups(matrix[place])
                found = self._scales(groups, common)
                quotients = self._quotients(groups, self._wide(found, common))
                codes = rounded(quotients, E2M1).view(np.uint8).reshape(-1, matrix.shape[1])
                words.reshape(len(matrices), *words.shape[-2:])[number, place] = packed(codes)
                scales.reshape(len(matrices), *scales.shape[-2:])[number, place] = found
        return words, scales, *more

    def decode(self, weight: Weight, stored: Sequence[Array]) -> Array:
        scheme = self.scheme
        if not scheme.covers(weight.role):
            return stored[0]
        words, scales, *more = stored
        numbers = _NUMBERS[unpacked(words, E2M1.bits)].reshape(*scales.shape, scheme.group_size)
        with np.errstate(over="ignore"):
            numbers = numbers * self._powers(scales)[..., np.newaxis]
            if more:
                experts = weight.shape[:-2]
                numbers = numbers * more[0].reshape(*experts, *([1] * (numbers.ndim - len(experts))))
            found: Array = numbers.reshape(weight.shape).astype(dtype_of(scheme.model_dtype))
        return found

    def error_bound(self, weight: Weight, numbers: Array) -> Array:
        if not self.scheme.covers(weight.role):
            return np.zeros(numbers.shape)
        limits = ml_dtypes.finfo(numbers.dtype)  # type: ignore[no-untyped-call]
        bounds = []
        for matrix in numbers.reshape(-1, *numbers.shape[-2:]):
            common, groups = self._global_scale(matrix), self._groups(matrix)
            scale = self._wide(self._scales(groups, common), common).astype(np.float64)
            wide = np.abs(groups.astype(np.float64))
            quotient = wide / np.where(scale > 0, scale, 1) * (1 + 2 * float(np.finfo(np.float32).eps))
            bounds.append(np.where(scale > 0, scale * half_step(quotient, E2M1), wide))
        bound: Array = np.stack(bounds).reshape(numbers.shape)
        wide = np.abs(numbers.astype(np.float64))
        return bound + wide * (2 * float(limits.eps)) + float(limits.smallest_subnormal)

    def _groups(self, matrix: Array) -> Array:
        return matrix.astype(np.float32, copy=False).reshape(len(matrix), -1, self.scheme.group_size)

    def _global_scale(self, matrix: Array) -> np.float32:
        if not self.scheme.has_global_scale:
            return np.float32(1)
        largest = np.float32(np.abs(matrix.astype(np.float32, copy=False)).max())
        return cast("np.float32", np.maximum(largest / np.float32(E2M1.largest * E4M3.largest), _LEAST))

    def _scales(self, groups: Array, common: np.float32) -> Array:
        """The scales of groups (rows, groups, size), as stored."""
        largest = np.abs(groups).max(axis=2)
        if self.scheme.scales == "E4M3":
            return rounded(largest / np.float32(E2M1.largest) / common, E4M3)
        _, exponents = np.frexp(largest)  # of numbers in [1/2, 1)
        exponents = np.where(largest > 0, exponents - 1 - _LARGEST_POWER + _BIAS, 0)
        return np.clip(exponents, 0, 2 * _BIAS).astype(np.uint8)

    def _powers(self, scales: Array) -> Array:
        """Stored scales in float32."""
        if self.scheme.scales == "E4M3":
            return scales.astype(np.float32)
        return np.ldexp(np.float32(1), scales.astype(np.int32) - _BIAS)

    def _wide(self, scales: Array, common: np.float32) -> Array:
        """What the floats of groups are multiplied by: (rows, groups, 1) float32."""
        return (self._powers(scales) * common)[:, :, np.newaxis]

    @staticmethod
    def _quotients(groups: Array, scale: Array) -> Array:
        quotients: Array = groups / np.where(scale > 0, scale, np.float32(1))
        return np.where(scale > 0, quotients, np.float32(0))


def packed(codes: Array) -> Array:
    """(rows, columns) of integers below 16 → (rows, columns / 8) uint32."""
    pairs = codes[:, 0::2] | (codes[:, 1::2] << 4)
    words: Array = np.ascontiguousarray(pairs).view("<u4").astype(np.uint32, copy=False)
    return words
