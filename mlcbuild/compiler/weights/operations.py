"""Carries out the operations of `models.operations` on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlcbuild.compiler.models.operations import Concatenate, Operation, Permute, Reshape, Slice, Stack
from mlcbuild.compiler.weights.tensor import Array


def carry_out(operations: Sequence[Operation], arrays: Sequence[Array]) -> Array:
    """The one array that operations make of several; its numbers lie in order. Shapes have been checked."""
    made = list(arrays)
    for operation in operations:
        made = _carried_out(operation, made)
    (result,) = made
    return np.ascontiguousarray(result)


def _carried_out(operation: Operation, arrays: list[Array]) -> list[Array]:
    match operation:
        case Concatenate(axis=axis):
            return [np.concatenate(arrays, axis=axis)]
        case Stack(axis=axis):
            return [np.stack(arrays, axis=axis)]
        case Slice(axis=axis, begin=begin, end=end):
            return [array[(slice(None),) * axis + (slice(begin, end),)] for array in arrays]
        case Permute(axes=axes):
            return [array.transpose(axes) for array in arrays]
        case Reshape(shape=shape):
            return [array.reshape(shape) for array in arrays]
