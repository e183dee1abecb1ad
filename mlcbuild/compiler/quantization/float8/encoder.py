"""Floats of 8 bits in NumPy.

For a block w of weights that share a scale, with m the largest float of 8 bits:

    scale = max(max|w|, least) / m       in float32; of a whole matrix as MLC-LLM has it, in the model's type,
                                         and at least 1 / (512 m)
    q     = the float of 8 bits nearest to w / scale, ties to even, at most m
    w'    = q · scale, in float32, rounded to the model's type

so |w' - w| is at most scale times half of the distance between floats of 8 bits at |w| / scale, and the roundings of
the quotient, the product and w' (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 2.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from mlcbuild.compiler.quantization.float8.scheme import Float8Scheme, WeightScales
from mlcbuild.compiler.quantization.minifloat_numbers import half_step, rounded
from mlcbuild.compiler.quantization.scheme import Weight
from mlcbuild.compiler.weights.scaled_floats import FloatMatrix
from mlcbuild.compiler.weights.tensor import FLOAT8, Array, dtype_of

_LEAST = np.float32(1e-10)  # what MLC-LLM's block scales take for the largest of a block that has smaller numbers
_LEAST_OF_A_MATRIX = 512  # its least scale of a matrix is 1 / (512 m)


class Float8Encoder:
    """The `Encoder` of floats of 8 bits. Static scales of activations are zeros, which says that there are none, unless
    some are given."""

    def __init__(self, scheme: Float8Scheme) -> None:
        self.scheme = scheme

    def encode(self, weight: Weight, numbers: Array) -> tuple[Array, ...]:
        scheme = self.scheme
        if not scheme.covers(weight.role):
            return (numbers,)
        wide = numbers.astype(np.float32, copy=False)
        if scheme.scales is None:
            return (rounded(wide, scheme.format),)
        scales = self._scales(numbers, scheme.scales)
        stored = rounded(wide / spread(scales, scheme.scales, numbers.shape), scheme.format)
        count = scheme.static_scales(weight)
        return stored, scales, *([np.zeros((count,), np.float32)] if count else [])

    def decode(self, weight: Weight, stored: Sequence[Array]) -> Array:
        scheme = self.scheme
        if not scheme.covers(weight.role):
            return stored[0]
        wide = stored[0].astype(np.float32)
        if scheme.scales is not None:
            wide *= spread(stored[1], scheme.scales, wide.shape)
        return wide.astype(dtype_of(scheme.model_dtype))

    def error_bound(self, weight: Weight, numbers: Array) -> Array:
        scheme = self.scheme
        if not scheme.covers(weight.role):
            return np.zeros(numbers.shape)
        limits = ml_dtypes.finfo(numbers.dtype)  # type: ignore[no-untyped-call]
        wide = np.abs(numbers.astype(np.float64))
        if scheme.scales is None:
            scale: Array = np.ones((), np.float64)
        else:
            scale = spread(self._scales(numbers, scheme.scales), scheme.scales, numbers.shape).astype(np.float64)
        eps = float(np.finfo(np.float32).eps)
        bound: Array = scale * half_step(wide / scale * (1 + eps), scheme.format)
        return bound + wide * (2 * float(limits.eps)) + float(limits.smallest_subnormal)

    def store_floats(self, weight: Weight, matrix: FloatMatrix) -> tuple[Array, ...] | None:
        """See `FloatEncoder`."""
        scheme = self.scheme
        if not scheme.covers(weight.role) or scheme.scales is None or scheme.format.dtype != FLOAT8:
            return None
        scales = _of_blocks(matrix, scheme.scales)
        if scales is None:
            return None
        count = scheme.static_scales(weight)
        shape = scheme.scales.shape(weight.shape)
        return matrix.floats, scales.reshape(shape), *([np.zeros((count,), np.float32)] if count else [])

    def with_static_scales(
        self, weight: Weight, stored: Sequence[Array], activation_scales: Array
    ) -> tuple[Array, ...] | None:
        """See `StaticScalesEncoder`. One scale for all columns is that of each part."""
        count = self.scheme.static_scales(weight)
        if not count or len(activation_scales) not in (1, count):
            return None
        *others, static = stored
        return *others, np.broadcast_to(activation_scales, static.shape).astype(np.float32)

    def static_scales_of(self, weight: Weight, largest: Array) -> Array | None:
        """See `StaticScalesEncoder`: largest / m, as MLC-LLM's observer and its scales of tokens have it."""
        count, activations = self.scheme.static_scales(weight), self.scheme.activations
        if not count or activations is None:
            return None
        width = activations.group or len(largest)
        of_part = np.pad(largest, (0, count * width - len(largest))).reshape(count, width).max(axis=1)
        most = np.float32(self.scheme.format.largest)
        scales: Array = np.where(of_part > 0, np.maximum(of_part, _LEAST) / most, np.float32(0))
        return scales

    def _scales(self, numbers: Array, scales: WeightScales) -> Array:
        most = np.float32(self.scheme.format.largest)
        *experts, out, columns = numbers.shape
        if not scales.rows and not scales.columns:
            # MLC-LLM computes these two in the model's type.
            kind = numbers.dtype
            largest = np.abs(numbers.reshape(*experts, -1)).max(axis=-1)
            found = np.maximum(largest / kind.type(most), kind.type(1 / (float(most) * _LEAST_OF_A_MATRIX)))
            return np.atleast_1d(found.astype(np.float32))
        rows, width = scales.rows or out, scales.columns or columns
        missing = (-out % rows, -columns % width)
        wide = np.abs(numbers.astype(np.float32, copy=False))
        if any(missing):
            wide = np.pad(wide, (*((0, 0) for _ in experts), (0, missing[0]), (0, missing[1])))
        blocks = wide.reshape(*experts, wide.shape[-2] // rows, rows, wide.shape[-1] // width, width)
        largest = blocks.max(axis=(-3, -1))
        block_scales: Array = np.maximum(largest, _LEAST) / most
        return block_scales


def _of_blocks(matrix: FloatMatrix, of: WeightScales) -> Array | None:
    """The scales (…, blocks of rows, blocks of columns) of a matrix that has one for each block; None for any other."""
    *_, out, columns = matrix.bits.shape
    rows, width = of.rows or out, of.columns or columns
    common = math.gcd(matrix.group_size, width)  # columns that have one scale in the matrix, and in a block
    scales = np.repeat(matrix.scales, matrix.group_size // common, axis=-1)
    missing = (-out % rows, -scales.shape[-1] % (width // common))
    scales = np.pad(scales, (*[(0, 0)] * (scales.ndim - 2), (0, missing[0]), (0, missing[1])), mode="edge")
    across, along = scales.shape[-2] // rows, scales.shape[-1] // (width // common)
    blocks = scales.reshape(*scales.shape[:-2], across, rows, along, width // common)
    first = blocks[..., :1, :, :1]
    return np.ascontiguousarray(first[..., 0, :, 0]) if (blocks == first).all() else None


def spread(scales: Array, of: WeightScales, shape: tuple[int, ...]) -> Array:
    """Stored scales as an array that goes with a matrix of the shape."""
    *experts, out, columns = shape
    if not of.rows and not of.columns:
        return scales.reshape(*(experts or ()), 1, 1)
    if of.rows > 1:
        scales = np.repeat(scales, of.rows, axis=-2)[..., :out, :]
    return np.repeat(scales, of.columns, axis=-1)[..., :columns] if of.columns > 1 else scales
