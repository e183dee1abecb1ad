"""Blocks of ggml in NumPy: which numbers they have is said in `q8_0` and `k_quants`, for numbers in float32.

What blocks stand for is rounded to the model's type, once: |w' - w| is at most the bound of the type of block, and half
of the model's epsilon of w', or half of its smallest number.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from mlcbuild.compiler.quantization.ggml import k_quants, q8_0
from mlcbuild.compiler.quantization.ggml.scheme import GgmlScheme
from mlcbuild.compiler.quantization.integers import regrouped
from mlcbuild.compiler.quantization.scheme import Weight
from mlcbuild.compiler.weights.block_types import BlockType
from mlcbuild.compiler.weights.ggml_blocks import BlockMatrix
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.tensor import Array, dtype_of

_PIECE_ELEMENTS = 1 << 20  # blocks are made in pieces, so that temporaries stay small
_BITS = {"Q4_K": 4, "Q5_K": 5}


class GgmlEncoder:
    """The `IntegerEncoder`, `BlockEncoder` and `RowEncoder` of blocks of ggml."""

    def __init__(self, scheme: GgmlScheme) -> None:
        self.scheme = scheme

    def encode(self, weight: Weight, numbers: Array) -> tuple[Array, ...]:
        if not self.scheme.covers(weight.role):
            return (numbers,)
        kind = self.scheme.block_of(weight)
        flat = numbers.reshape(-1, kind.elements)
        found = np.empty((len(flat), kind.size), np.uint8)
        step = max(1, _PIECE_ELEMENTS // kind.elements)
        for begin in range(0, len(flat), step):
            found[begin : begin + step] = _blocks(flat[begin : begin + step].astype(np.float32, copy=False), kind)
        return (found.reshape(*numbers.shape[:-1], -1),)

    def has_rows_apart(self, weight: Weight) -> bool:  # noqa: ARG002
        return True

    def store(self, weight: Weight, matrix: IntegerMatrix) -> tuple[Array, ...] | None:
        """Integers that are signed bytes with float16 scales, in groups of 32 or of a multiple, as blocks of Q8_0."""
        if self.block_kind(weight) != "Q8_0":
            return None
        kind = self.scheme.block_of(weight)
        groups = matrix.codes.shape[-1] // kind.elements
        found = regrouped(matrix, group_size=kind.elements, groups=groups, dtype=dtype_of("float16"), largest=1 << 7)
        if found is None:
            return None
        zeros, scales = (array.reshape(-1) for array in found)
        integers = matrix.codes.reshape(-1, kind.elements).astype(np.int16) - zeros[:, np.newaxis].astype(np.int16)
        if integers.min() < -128 or integers.max() > 127:
            return None
        stored = q8_0.joined(scales, integers.astype(np.int8)).reshape(*matrix.codes.shape[:-1], -1)
        return (stored,) if np.isfinite(self.decode(weight, (stored,))).all() else None

    def block_kind(self, weight: Weight) -> str | None:
        return self.scheme.block_of(weight).name if self.scheme.covers(weight.role) else None

    def decode(self, weight: Weight, stored: Sequence[Array]) -> Array:
        if not self.scheme.covers(weight.role):
            return stored[0]
        kind = self.scheme.block_of(weight)
        with np.errstate(over="ignore"):
            numbers: Array = (
                BlockMatrix(kind=kind.name, data=stored[0]).restored().astype(dtype_of(self.scheme.model_dtype))
            )
        return numbers

    def error_bound(self, weight: Weight, numbers: Array) -> Array:
        if not self.scheme.covers(weight.role):
            return np.zeros(numbers.shape)
        kind = self.scheme.block_of(weight)
        flat = numbers.reshape(-1, kind.elements).astype(np.float32)
        found = _bound(flat, kind).reshape(numbers.shape)
        limits = ml_dtypes.finfo(numbers.dtype)  # type: ignore[no-untyped-call]
        reached = np.abs(numbers.astype(np.float64)) + found
        rounding = np.maximum(reached * float(limits.eps), float(limits.smallest_subnormal)) / 2
        bound: Array = found + rounding + reached * 2.0**-23
        return bound


def _blocks(numbers: Array, kind: BlockType) -> Array:
    if kind.name == "Q8_0":
        return q8_0.blocks(numbers)
    if kind.name == "Q6_K":
        return k_quants.packed_symmetric(k_quants.symmetric(numbers))
    bits = _BITS[kind.name]
    return k_quants.packed_affine(k_quants.affine(numbers, (1 << bits) - 1), bits=bits)


def _bound(numbers: Array, kind: BlockType) -> Array:
    if kind.name == "Q8_0":
        return q8_0.bound(numbers)
    if kind.name == "Q6_K":
        return k_quants.bounds(numbers, k_quants.symmetric(numbers), least=-32, largest=31)
    largest = (1 << _BITS[kind.name]) - 1
    return k_quants.bounds(numbers, k_quants.affine(numbers, largest), least=0, largest=largest)
