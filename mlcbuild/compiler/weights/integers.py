"""Matrices that a checkpoint has as integers with scales: w = (code - zero) * scale, one scale and zero a group.

They are kept as they are until a scheme is known: one that can store the same integers loses nothing, and for any other
they are restored. Codes are unsigned bytes, whatever their bits were. What is restored has the type of the scales, and
each number is rounded to it once: the arithmetic of transformers and of the methods' own kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlcbuild.compiler.models.checkpoints.operations import Operation
from mlcbuild.compiler.weights.operations import carry_out
from mlcbuild.compiler.weights.tensor import STORAGE, Array, bfloat16_bits


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerMatrix:
    """`codes` (…, columns) are uint8. `zeros` (…, groups), uint8, and `scales` (…, groups), of the type
    `STORAGE[scale_dtype]`, are those of equal groups of columns."""

    codes: Array
    zeros: Array
    scales: Array
    scale_dtype: str

    def __post_init__(self) -> None:
        *rows, columns = self.codes.shape
        if self.codes.dtype != np.uint8 or self.zeros.dtype != np.uint8:
            raise ValueError(f"codes and zeros are uint8, not {self.codes.dtype} and {self.zeros.dtype}")
        if self.scales.dtype != STORAGE[self.scale_dtype]:
            raise ValueError(f"scales of {self.scale_dtype} are not {self.scales.dtype}")
        groups = self.scales.shape[-1]
        if self.scales.shape != self.zeros.shape or list(self.scales.shape[:-1]) != rows or columns % groups:
            raise ValueError(f"codes {self.codes.shape}, zeros {self.zeros.shape} and scales {self.scales.shape}")

    @property
    def group_size(self) -> int:
        """Columns that share a scale."""
        return int(self.codes.shape[-1] // self.scales.shape[-1])

    @property
    def wide_scales(self) -> Array:
        """The scales in float32, which has the numbers of each type."""
        return wide(self.scales, self.scale_dtype)

    def rows(self, begin: int, end: int) -> IntegerMatrix:
        """Some rows of the matrix."""
        codes, zeros, scales = (array[begin:end] for array in (self.codes, self.zeros, self.scales))
        return IntegerMatrix(codes=codes, zeros=zeros, scales=scales, scale_dtype=self.scale_dtype)

    def restored(self) -> Array:
        """The numbers, of the type `STORAGE[scale_dtype]`."""
        groups = self.codes.reshape(*self.scales.shape, -1).astype(np.float32)
        groups -= self.zeros[..., np.newaxis].astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            groups *= self.wide_scales[..., np.newaxis]
            return narrow(groups.reshape(self.codes.shape), self.scale_dtype)


def restored_columns(codes: Array, zeros: Array, scales: Array, dtype: str, group_of: Array) -> Array:
    """The numbers of codes (rows, columns), of which each column is of the group that `group_of` says: zeros and scales
    are (rows, groups), and scales of a checkpoint's type `dtype`."""
    numbers = codes.astype(np.float32)
    numbers -= zeros.astype(np.float32)[:, group_of]
    with np.errstate(over="ignore", invalid="ignore"):
        numbers *= wide(scales, dtype)[:, group_of]
        return narrow(numbers, dtype)


def carried_out(operations: Sequence[Operation], matrices: Sequence[IntegerMatrix]) -> IntegerMatrix | None:
    """What operations make of matrices; None where that has no groups of columns with one scale each.

    Scales and zeros go through the operations as codes do, one an element. So whatever moves rows, however it reshapes
    them, is carried out, and what moves columns is found by its groups.
    """
    (first, *others) = matrices
    if any(one.scale_dtype != first.scale_dtype for one in others):
        return None
    width = min(one.group_size for one in matrices)
    codes = carry_out(operations, [one.codes for one in matrices])
    if codes.shape[-1] % width:
        return None
    sizes = [one.group_size for one in matrices]
    group_zeros = carried_out_of_groups(operations, [one.zeros for one in matrices], sizes)
    group_scales = carried_out_of_groups(operations, [one.scales for one in matrices], sizes)
    if group_zeros is None or group_scales is None:
        return None
    return IntegerMatrix(codes=codes, zeros=group_zeros, scales=group_scales, scale_dtype=first.scale_dtype)


def carried_out_of_groups(
    operations: Sequence[Operation], numbers: Sequence[Array], sizes: Sequence[int]
) -> Array | None:
    """What operations on matrices make of numbers (…, groups) of their groups of columns, `sizes` of them in each: one
    for each group of the smallest size, which divides what is made. None where one of these has several."""
    elements = carry_out(operations, [np.repeat(one, size, axis=-1) for one, size in zip(numbers, sizes, strict=True)])
    groups = elements.reshape(*elements.shape[:-1], -1, min(sizes))
    first = groups[..., :1]
    return np.ascontiguousarray(first[..., 0]) if (groups == first).all() else None


def wide(numbers: Array, dtype: str) -> Array:
    """Numbers of a checkpoint's type in float32."""
    if dtype == "bfloat16":
        bits: Array = (numbers.astype(np.uint32) << 16).view(np.float32)
        return bits
    return numbers.astype(np.float32)


def narrow(numbers: Array, dtype: str) -> Array:
    """float32 numbers as a checkpoint has them in a type, rounded to nearest, ties to even."""
    return bfloat16_bits(numbers) if dtype == "bfloat16" else numbers.astype(STORAGE[dtype])
