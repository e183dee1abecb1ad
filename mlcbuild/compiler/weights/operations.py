"""Carries out the operations of `checkpoints.operations` on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlcbuild.compiler.models.checkpoints.operations import (
    AddOne,
    Concatenate,
    Flatten,
    LogOfNegative,
    Operation,
    Permute,
    Reshape,
    Slice,
    Split,
    Stack,
    UnitRows,
)
from mlcbuild.compiler.weights.tensor import Array


def carry_out(operations: Sequence[Operation], arrays: Sequence[Array]) -> Array:
    """The one array that operations make of several; its numbers lie in order. Shapes have been checked. Raises
    ValueError for numbers that have no logarithm."""
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
        case Split(axis=axis, sizes=sizes):
            places = np.cumsum(sizes)[:-1]
            return [part for array in arrays for part in np.split(array, places, axis=axis)]
        case Flatten(axes=axes):
            return [array.reshape(-1, *array.shape[axes:]) for array in arrays]
        case AddOne(times=times):
            return [(array.astype(np.float32) + np.float32(times)).astype(array.dtype) for array in arrays]
        case LogOfNegative():
            return [_log_of_negative(array) for array in arrays]
        case UnitRows():
            return [_of_unit_rows(array) for array in arrays]


def _of_unit_rows(array: Array) -> Array:
    rows = array.astype(np.float32)
    lengths = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
    made: Array = (rows / lengths).astype(array.dtype)
    return made


def _log_of_negative(array: Array) -> Array:
    negated = -array.astype(np.float64)
    if not (negated >= 0).all():
        raise ValueError("has numbers that are not negative; their logarithms are needed")
    made: Array = np.log(np.maximum(negated, np.finfo(np.float32).smallest_subnormal)).astype(array.dtype)
    return made
