"""Group quantization in NumPy, bit for bit what MLC-LLM's kernels compute on a CPU.

For a group w of `group_size` weights of a row, all in the model's dtype and each operation rounded to it (in bfloat16
what is stored alone: scale, q and w'):

    scale = max|w| / max_int                       max_int = 2^(bits - 1) - 1
    q     = min(max(round(w / scale + max_int), 0), 2 * max_int)
    w'    = (q - max_int) * scale

`round` takes ties to the even integer, as `tirx.round` does in TVM. Where the scale is 0 (all weights are
zero, or too small for a float16 scale) the quotient of a zero is no number; it is stored as 0 there and
reads back as zero all the same. Integers are packed into words from the low end, in the order of the row. Where a row
ends within its last group, the words of that group are filled up with zeros, and its scale is that of the weights there
are.

How far w' is from w follows from the standard model of rounding (N. J. Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., section 2.2), in which an operation is right to within half of the dtype's epsilon eps, or half of
its smallest positive number eta. The integer is off by 1/2 and by the roundings of the quotient (at most max_int) and
of the sum (at most 2 max_int), the product by its own rounding; a scale is off by eta / 2 where it is subnormal, which
its multiple of at most max_int passes on. With the terms of second order rounded up:

    |w' - w| <= scale (1/2 + 3 max_int eps) + max_int eta

It holds while max_int * scale, which may be rounded to above max|w|, is finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from mlcbuild.compiler.quantization.float16_arithmetic import round_fractions, widened
from mlcbuild.compiler.quantization.group.scheme import GroupScheme
from mlcbuild.compiler.quantization.integer_grid import IntegerGrid
from mlcbuild.compiler.quantization.integers import regrouped, whole_groups
from mlcbuild.compiler.quantization.scheme import Weight
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.tensor import Array, dtype_of

# Rows are done in blocks whose temporaries stay in a processor's cache, and in memory that it has already.
_BLOCK_ELEMENTS = 1 << 16
_SHORT = 256  # elements of a group, below which NumPy's reduction of rows is slower than one of columns


class GroupEncoder:
    """The `GridEncoder` and `RowEncoder` of a scheme of integers in groups."""

    def __init__(self, scheme: GroupScheme) -> None:
        self.scheme = scheme

    def encode(self, weight: Weight, numbers: Array) -> tuple[Array, ...]:
        if not self.scheme.covers(weight.role):
            return (numbers,)
        self.scheme.stored(weight)  # refuses columns that are no whole groups
        *others, columns = numbers.shape
        packed, scale = self._quantize(numbers.reshape(-1, columns))
        if self.scheme.is_by_columns(weight.role):
            return np.ascontiguousarray(packed.T), np.ascontiguousarray(scale.T)
        return packed.reshape(*others, -1), scale.reshape(*others, -1)

    def has_rows_apart(self, weight: Weight) -> bool:
        return not (self.scheme.covers(weight.role) and self.scheme.is_by_columns(weight.role))

    def store(self, weight: Weight, matrix: IntegerMatrix) -> tuple[Array, ...] | None:
        """Integers are stored as the differences from their zeros. Those from -max_int to max_int + 1 fit into the
        bits, and so do those from -max_int - 1 to max_int, whose signs a negative scale turns: so every integer with a
        sign fits, whatever its group holds."""
        scheme = self.scheme
        if not scheme.covers(weight.role):
            return None
        columns = matrix.codes.shape[-1]
        found = regrouped(
            matrix,
            group_size=scheme.group_size,
            groups=scheme.groups(columns),
            dtype=dtype_of(scheme.model_dtype),
            largest=scheme.max_int + 1,
        )
        if found is None:
            return None
        zeros, scales = (array.reshape(-1, array.shape[-1]) for array in found)
        codes = whole_groups(matrix.codes.reshape(-1, columns), scheme.group_size)
        groups = codes.reshape(len(codes), -1, scheme.group_size).astype(np.int16)
        groups -= zeros[:, :, np.newaxis].astype(np.int16)
        flat = groups.reshape(len(codes), -1)
        flat[:, columns:] = 0
        is_negated = groups.min(axis=2) < -scheme.max_int
        groups *= np.where(is_negated, -1, 1).astype(np.int16)[:, :, np.newaxis]
        if groups.min() < -scheme.max_int or groups.max() > scheme.max_int + 1:
            return None
        groups += scheme.max_int
        flat[:, columns:] = 0
        words, stored_scales = scheme.stored(weight)
        packed, scale = self.pack(flat.astype(np.uint8)), np.where(is_negated, -scales, scales)
        if scheme.is_by_columns(weight.role):
            return np.ascontiguousarray(packed.T), np.ascontiguousarray(scale.T)
        return packed.reshape(words.shape), scale.reshape(stored_scales.shape)

    def grid(self, weight: Weight) -> IntegerGrid | None:
        if not self.scheme.covers(weight.role):
            return None
        return IntegerGrid(
            group_size=self.scheme.group_size,
            largest=2 * self.scheme.max_int,
            dtype=dtype_of(self.scheme.model_dtype),
            of_range=self._of_range,
        )

    def decode(self, weight: Weight, stored: Sequence[Array]) -> Array:
        if not self.scheme.covers(weight.role):
            return stored[0]
        by_columns = self.scheme.is_by_columns(weight.role)
        packed, scales = (array.T if by_columns else array.reshape(-1, array.shape[-1]) for array in stored)
        rows, groups = scales.shape
        integers = self.unpack(packed).astype(scales.dtype).reshape(rows, groups, self.scheme.group_size)
        numbers: Array = (integers - scales.dtype.type(self.scheme.max_int)) * scales[:, :, np.newaxis]
        return numbers.reshape(rows, -1)[:, : weight.shape[-1]].reshape(weight.shape)

    def error_bound(self, weight: Weight, numbers: Array) -> Array:
        if not self.scheme.covers(weight.role):
            return np.zeros(numbers.shape)
        limits = ml_dtypes.finfo(numbers.dtype)  # type: ignore[no-untyped-call]
        largest = self.scheme.max_int
        columns = numbers.shape[-1]
        whole = whole_groups(np.abs(numbers.astype(np.float64)).reshape(-1, columns), self.scheme.group_size)
        groups = whole.reshape(-1, self.scheme.group_size)
        # The stored scale is the exact one to within its rounding, which the terms of second order have room for.
        scale = np.broadcast_to(groups.max(axis=1, keepdims=True) / largest, groups.shape)
        bound: Array = scale * (0.5 + 3 * largest * float(limits.eps)) + largest * float(limits.smallest_subnormal)
        return bound.reshape(whole.shape)[:, :columns].reshape(numbers.shape)

    def pack(self, integers: Array) -> Array:
        """(rows, columns) of unsigned integers below 2^bits → (rows, words) uint32."""
        rows = integers.shape[0]
        if self.scheme.bits in (4, 8):  # whole bytes
            packed_bytes = np.ascontiguousarray(integers, np.uint8)
            if self.scheme.bits == 4:
                pairs = packed_bytes.view("<u2")
                packed_bytes = (pairs | pairs >> np.uint16(4)).astype(np.uint8)
            return packed_bytes.view("<u4")
        lanes = integers.astype(np.uint32, copy=False).reshape(rows, -1, self.scheme.elements_per_word)
        packed = np.zeros(lanes.shape[:2], np.uint32)
        for lane in range(self.scheme.elements_per_word):
            packed |= lanes[:, :, lane] << np.uint32(lane * self.scheme.bits)
        return packed

    def unpack(self, packed: Array) -> Array:
        """The inverse of `pack`."""
        rows, words = packed.shape
        shifts = np.arange(self.scheme.elements_per_word, dtype=np.uint32) * np.uint32(self.scheme.bits)
        lanes: Array = (packed[:, :, np.newaxis] >> shifts) & np.uint32((1 << self.scheme.bits) - 1)
        return lanes.reshape(rows, words * self.scheme.elements_per_word)

    def _of_range(self, low: Array, high: Array) -> tuple[Array, Array]:
        scales = self._scales(np.maximum(np.abs(low), np.abs(high)), dtype_of(self.scheme.model_dtype))
        return scales, np.full(scales.shape, self.scheme.max_int, np.uint8)

    def _scales(self, largest: Array, dtype: np.dtype[Any]) -> Array:
        """Of groups whose largest magnitudes, in float32, are given."""
        return (largest / np.float32(self.scheme.max_int)).astype(dtype)

    def _quantize(self, numbers: Array) -> tuple[Array, Array]:
        """(rows, columns) → packed (rows, words) uint32 and scales (rows, groups) of the numbers' dtype."""
        scheme = self.scheme
        rows, columns = numbers.shape
        groups = scheme.groups(columns)
        packed = np.empty((rows, groups * scheme.words_per_group), np.uint32)
        scales = np.empty((rows, groups), numbers.dtype)
        step = max(1, _BLOCK_ELEMENTS // max(columns, 1))
        for begin in range(0, rows, step):
            rows_of_block = whole_groups(numbers[begin : begin + step], scheme.group_size)
            block = rows_of_block.reshape(-1, groups, scheme.group_size)
            quantized, scale = self._quantize_groups(block)
            integers = quantized.reshape(len(block), -1)
            integers[:, columns:] = 0
            packed[begin : begin + step] = self.pack(integers)
            scales[begin : begin + step] = scale
        return packed, scales

    def _quantize_groups(self, block: Array) -> tuple[Array, Array]:
        """(rows, groups, group_size) → integers of the same shape, and scales (rows, groups)."""
        # What TVM computes of bfloat16 numbers on a CPU is float32 within an expression, and is rounded where it is
        # stored; of float16 numbers each operation is rounded.
        wide, is_half = widened(block), block.dtype == np.float16
        largest = np.float32(self.scheme.max_int)
        scale = self._scales(largest_magnitudes(wide), block.dtype)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            shifted = wide / widened(scale)[:, :, np.newaxis]
            if is_half:
                round_fractions(shifted)
            shifted += largest
            if is_half:
                round_fractions(shifted)
            np.rint(shifted, out=shifted)
        np.fmax(shifted, 0, out=shifted)  # also of what is no number
        np.fmin(shifted, 2 * largest, out=shifted)
        return shifted.astype(np.uint8), scale


def largest_magnitudes(groups: Array) -> Array:
    """(rows, groups) of float32 numbers (rows, groups, group_size)."""
    *shape, size = groups.shape
    magnitudes = np.abs(groups).reshape(-1, size)
    largest: Array = magnitudes.max(axis=1) if size >= _SHORT else np.ascontiguousarray(magnitudes.T).max(axis=0)
    return largest.reshape(shape)
