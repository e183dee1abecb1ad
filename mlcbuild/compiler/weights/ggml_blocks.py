"""Matrices that a GGUF file has in blocks of ggml's K-quants, which are kept as they are until a scheme is known.

They are integers whose scales, and offsets, are integers with scales themselves, so that `weights.integers` has no form
of them. Blocks lie in rows, and whatever moves rows as a whole moves blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from mlcbuild.compiler.models.checkpoints.inverse import Chain
from mlcbuild.compiler.models.checkpoints.operations import Operation
from mlcbuild.compiler.weights.block_types import BLOCK_TYPES, BlockType
from mlcbuild.compiler.weights.gguf_blocks import dequantize_blocks
from mlcbuild.compiler.weights.operations import carry_out
from mlcbuild.compiler.weights.tensor import Array, Rows

_PIECE_BYTES = 1 << 22  # restored at a time, so that temporaries stay small


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMatrix:
    """`data` (…, bytes of a row), uint8, are blocks of a type in `BLOCK_TYPES`."""

    kind: str
    data: Array

    def __post_init__(self) -> None:
        if self.kind not in BLOCK_TYPES:
            raise ValueError(f"not a type whose blocks are kept: {self.kind!r}")
        if self.data.dtype != np.uint8 or self.data.shape[-1] % self.type.size:
            raise ValueError(f"{self.data.dtype} {self.data.shape} are no rows of blocks of {self.kind}")

    @property
    def type(self) -> BlockType:
        return BLOCK_TYPES[self.kind]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the numbers."""
        return (*self.data.shape[:-1], self.data.shape[-1] // self.type.size * self.type.elements)

    def restored(self) -> Array:
        """The numbers, in float32: bit for bit those that llama.cpp computes with."""
        from gguf.constants import GGMLQuantizationType

        blocks = self.data.reshape(-1, self.type.size)
        numbers: Array = np.empty((len(blocks), self.type.elements), np.float32)
        step = max(1, _PIECE_BYTES // self.type.size)
        for begin in range(0, len(blocks), step):
            made = dequantize_blocks(blocks[begin : begin + step], GGMLQuantizationType[self.kind])
            assert made is not None  # every type in `BLOCK_TYPES` holds weights
            numbers[begin : begin + step] = made
        return numbers.reshape(self.shape)


@runtime_checkable
class BlockSource(Protocol):
    """A checkpoint some of whose tensors are blocks."""

    def block_kind(self, name: str) -> str | None:
        """The type in `KEPT_AS_BLOCKS` of a tensor's blocks; None for any other tensor."""

    def blocks(self, name: str, rows: Rows | None = None) -> BlockMatrix:
        """A tensor with a `block_kind`, or some of its rows."""


def moves_rows(operations: Sequence[Operation], shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether operations move each row of matrices of these shapes as a whole."""
    return not operations or Chain(given=tuple(shapes), operations=tuple(operations)).keeps_rows


def rows_of(operations: Sequence[Operation], shapes: Sequence[tuple[int, ...]]) -> Array:
    """For each row of what operations make of matrices, its number (int32) among the rows of all of these, one matrix
    after the other. The operations move rows as a whole."""
    numbered, first = [], 0
    for *outer, columns in shapes:
        count = int(np.prod(outer, dtype=np.int64))
        rows = np.arange(first, first + count, dtype=np.int32).reshape(*outer, 1)
        numbered.append(np.broadcast_to(rows, (*outer, columns)))
        first += count
    made = carry_out(operations, numbered) if operations else numbered[0]
    return np.ascontiguousarray(made[..., 0])


def carried_out(operations: Sequence[Operation], matrix: BlockMatrix) -> BlockMatrix:
    """What operations that move rows make of one matrix."""
    rows = matrix.data.reshape(-1, matrix.data.shape[-1])
    return BlockMatrix(kind=matrix.kind, data=rows[rows_of(operations, [matrix.shape])])
