"""Undoes the operations of `checkpoints.operations` on NumPy arrays: from a parameter to the tensors it is made of.

Arrays hold numbers, or, where every row is moved as a whole (`checkpoints.inverse`), blocks of quantized numbers, so
many of which make a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlcbuild.compiler.models.checkpoints.inverse import Chain, ParameterChain
from mlcbuild.compiler.models.checkpoints.operations import (
    AddOne,
    Concatenate,
    Flatten,
    LogOfNegative,
    Operation,
    Permute,
    Reshape,
    Shape,
    Slice,
    Split,
    Stack,
    UnitRows,
)
from mlcbuild.compiler.weights.tensor import Array


class TensorsToFill:
    """Tensors of a file, filled part by part from the parameters that are made of them. `block` is how many numbers an
    element of an array stands for."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def put(self, chain: ParameterChain, made: Array, *, block: int = 1) -> None:
        """Take the numbers of a parameter. An array that is one tensor as it is, is kept and not copied."""
        for source, part in zip(chain.sources, undone(chain.last, made, block=block), strict=True):
            for layout, first, piece in zip(
                source.layouts, source.first, undone(source.joined, part, block=block), strict=True
            ):
                self._fill(layout.name, layout.shape, first, piece, block)

    def has(self, name: str) -> bool:
        """Whether a part of a tensor has been put, and it has not been taken."""
        return name in self._arrays

    def take(self, name: str) -> Array:
        """A tensor whose parts have all been put; it is forgotten here."""
        return self._arrays.pop(name)

    def _fill(self, name: str, shape: Shape, chain: Chain, piece: Array, block: int) -> None:
        match chain.operations:
            case (Slice(axis=axis, begin=begin, end=end) as cut, *rest):
                if name not in self._arrays:
                    self._arrays[name] = np.empty(_in_blocks(shape, block), piece.dtype)
                after = Chain(given=tuple(cut.shapes([shape])), operations=tuple(rest))
                place = (slice(None),) * axis + (slice(begin, end),)
                (self._arrays[name][place],) = undone(after, piece, block=block)
            case _:
                (self._arrays[name],) = undone(chain, piece, block=block)


def undone(chain: Chain, made: Array, *, block: int = 1) -> list[Array]:
    """The arrays of which a chain makes `made`. Raises ValueError for a chain that leaves numbers out."""
    steps: list[list[Shape]] = [list(chain.given)]
    for operation in chain.operations:
        steps.append(operation.shapes(steps[-1]))
    arrays = [made.reshape(_in_blocks(steps[-1][0], block))]
    for operation, given in zip(reversed(chain.operations), reversed(steps[:-1]), strict=True):
        arrays = _undone(operation, arrays, [_in_blocks(shape, block) for shape in given])
    return arrays


def _in_blocks(shape: Shape, block: int) -> Shape:
    return (*shape[:-1], shape[-1] // block) if block > 1 else shape


def _undone(operation: Operation, arrays: list[Array], given: Sequence[Shape]) -> list[Array]:
    match operation:
        case Concatenate(axis=axis):
            places = np.cumsum([shape[axis] for shape in given])[:-1]
            return np.split(arrays[0], places, axis=axis)
        case Stack(axis=axis):
            return [np.take(arrays[0], number, axis=axis) for number in range(len(given))]
        case Permute(axes=axes):
            return [array.transpose(np.argsort(axes)) for array in arrays]
        case Reshape() | Flatten():
            return [array.reshape(shape) for array, shape in zip(arrays, given, strict=True)]
        case Split(axis=axis, sizes=sizes):
            count = len(sizes)
            return [np.concatenate(arrays[begin : begin + count], axis=axis) for begin in range(0, len(arrays), count)]
        case AddOne(times=times):
            return [(array.astype(np.float32) - np.float32(times)).astype(array.dtype) for array in arrays]
        case LogOfNegative():
            return [(-np.exp(array.astype(np.float64))).astype(array.dtype) for array in arrays]
        case UnitRows():
            return arrays  # They are of unit length already, and so stay as they are where they are read.
        case Slice():
            raise ValueError(f"{operation} leaves numbers out, and cannot be undone")
