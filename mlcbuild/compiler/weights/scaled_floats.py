"""Matrices that a checkpoint has as floats of 8 bits with scales: w = float * scale, one scale a group of a row.

They are kept as they are until a scheme is known, as integers are (`weights.integers`). A scale for a block of rows, or
for a whole matrix, is written for each of its rows: so matrices can be joined and cut by rows, whatever their blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from mlcbuild.compiler.models.checkpoints.operations import Operation
from mlcbuild.compiler.weights.integers import carried_out_of_groups
from mlcbuild.compiler.weights.operations import carry_out
from mlcbuild.compiler.weights.tensor import FLOAT8, Array


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatMatrix:
    """`bits` (…, columns) are those of E4M3, in uint8, and `scales` (…, groups), float32, those of equal groups of
    columns."""

    bits: Array
    scales: Array

    def __post_init__(self) -> None:
        if self.bits.dtype != np.uint8 or self.scales.dtype != np.float32:
            raise ValueError(f"bits are uint8 and scales float32, not {self.bits.dtype} and {self.scales.dtype}")
        if self.scales.shape[:-1] != self.bits.shape[:-1] or self.bits.shape[-1] % self.scales.shape[-1]:
            raise ValueError(f"bits {self.bits.shape} and scales {self.scales.shape}")

    @property
    def floats(self) -> Array:
        """The floats of 8 bits, as ml_dtypes has them."""
        return self.bits.view(getattr(ml_dtypes, FLOAT8))

    @property
    def group_size(self) -> int:
        """Columns that share a scale."""
        return int(self.bits.shape[-1] // self.scales.shape[-1])

    @property
    def is_finite(self) -> bool:
        return bool(((self.bits & 0x7F) != 0x7F).all() and np.isfinite(self.scales).all())

    def restored(self) -> Array:
        """The numbers, in float32."""
        groups = self.floats.astype(np.float32).reshape(*self.scales.shape, -1)
        with np.errstate(over="ignore", invalid="ignore"):
            numbers: Array = groups * self.scales[..., np.newaxis]
        return numbers.reshape(self.bits.shape)


def carried_out(operations: Sequence[Operation], matrices: Sequence[FloatMatrix]) -> FloatMatrix | None:
    """What operations make of matrices; None where that has no groups of columns with one scale each.

    Scales go through the operations as floats do, one an element.
    """
    width = min(one.group_size for one in matrices)
    bits = carry_out(operations, [one.bits for one in matrices])
    if bits.shape[-1] % width:
        return None
    sizes = [one.group_size for one in matrices]
    scales = carried_out_of_groups(operations, [one.scales for one in matrices], sizes)
    return None if scales is None else FloatMatrix(bits=bits, scales=scales)
