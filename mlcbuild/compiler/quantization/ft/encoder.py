"""Integers with one scale a row in NumPy, by the arithmetic of MLC-LLM's ft-quant.

For a row w, in the model's dtype and each operation rounded to it:

    scale = max|w| / max_int                            max_int = 2^(bits - 1) - 1
    q     = min(max(round(w / scale), -max_int), max_int)
    w'    = q * scale

MLC-LLM cuts at -max_int - 1, which only a row whose scale is subnormal reaches. What is stored is q + max_int, as in
groups; the bound of `group.encoder` holds, with the row as the group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlcbuild.compiler.quantization.float16_arithmetic import round_fractions, widened
from mlcbuild.compiler.quantization.ft.scheme import FtScheme
from mlcbuild.compiler.quantization.group.encoder import GroupEncoder, largest_magnitudes
from mlcbuild.compiler.quantization.integer_grid import IntegerGrid
from mlcbuild.compiler.quantization.scheme import Weight
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.tensor import Array


class FtEncoder:
    """The `GridEncoder` and `RowEncoder` of integers with one scale a row."""

    def __init__(self, scheme: FtScheme) -> None:
        self.scheme = scheme

    def encode(self, weight: Weight, numbers: Array) -> tuple[Array, ...]:
        return self._of(weight).encode(weight, numbers) if self.scheme.covers(weight.role) else (numbers,)

    def has_rows_apart(self, weight: Weight) -> bool:
        return not self.scheme.covers(weight.role) or self._of(weight).has_rows_apart(weight)

    def store(self, weight: Weight, matrix: IntegerMatrix) -> tuple[Array, ...] | None:
        return self._of(weight).store(weight, matrix) if self.scheme.covers(weight.role) else None

    def grid(self, weight: Weight) -> IntegerGrid | None:
        return self._of(weight).grid(weight) if self.scheme.covers(weight.role) else None

    def decode(self, weight: Weight, stored: Sequence[Array]) -> Array:
        return self._of(weight).decode(weight, stored) if self.scheme.covers(weight.role) else stored[0]

    def error_bound(self, weight: Weight, numbers: Array) -> Array:
        if not self.scheme.covers(weight.role):
            return np.zeros(numbers.shape)
        return self._of(weight).error_bound(weight, numbers)

    def _of(self, weight: Weight) -> GroupEncoder:
        groups = self.scheme.groups_of(weight)
        return _RowEncoder(groups) if self.scheme.has_row_scales(weight) else GroupEncoder(groups)


class _RowEncoder(GroupEncoder):
    """Rounds quotients, and not their sums with what makes them unsigned."""

    def _quantize_groups(self, block: Array) -> tuple[Array, Array]:
        wide, largest = widened(block), np.float32(self.scheme.max_int)
        scale = self._scales(largest_magnitudes(wide), block.dtype)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            integers = wide / widened(scale)[:, :, np.newaxis]
        if block.dtype == np.float16:
            round_fractions(integers)
        np.rint(integers, out=integers)
        integers[np.isnan(integers)] = 0
        np.clip(integers, -largest, largest, out=integers)
        integers += largest
        return integers.astype(np.uint8), scale
