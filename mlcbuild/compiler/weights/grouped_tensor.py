"""Tensors that formats have as integers by groups of inputs, which need not be neighbours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from mlcbuild.compiler.weights.integers import IntegerMatrix, restored_columns
from mlcbuild.compiler.weights.source import WeightSource
from mlcbuild.compiler.weights.tensor import Array, Rows, TensorDescription


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupedTensor(ABC):
    """A `QuantizedTensor`. `group_of` has the group of each input; `groups` is None where they are not neighbours."""

    source: WeightSource
    module: str
    description: TensorDescription
    parts: tuple[str, ...]
    bits: int
    group_of: Array
    groups: int | None

    def restored(self, rows: Rows | None) -> Array:
        codes, zeros, scales = self.read(rows)
        return restored_columns(codes, zeros, scales, self.description.dtype, self.group_of)

    def integers(self, rows: Rows | None) -> IntegerMatrix:
        codes, zeros, scales = self.read(rows)
        return IntegerMatrix(codes=codes, zeros=zeros, scales=scales, scale_dtype=self.description.dtype)

    @abstractmethod
    def read(self, rows: Rows | None) -> tuple[Array, Array, Array]:
        """Codes (out, in), zeros and scales (out, groups), as the format has them."""
