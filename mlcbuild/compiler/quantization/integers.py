"""Rows and their integers in the groups of a scheme."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.tensor import Array


def regrouped(
    matrix: IntegerMatrix, *, group_size: int, groups: int, dtype: np.dtype[Any], largest: int
) -> tuple[Array, Array] | None:
    """The zeros (…, groups) and the scales (…, groups), of `dtype`, of a scheme's `groups` of `group_size` columns.

    A group of the matrix is several of the scheme's, or a part of one, whose parts have one scale and zero. None where
    a group of the scheme has several, and where a scale, or `largest` times it, is no number of the type.
    """
    columns = matrix.codes.shape[-1]
    of_group = np.arange(groups) * group_size // matrix.group_size
    if matrix.scales.shape[-1] > 1 and matrix.group_size % group_size:
        of_column = of_group[np.arange(0, columns, matrix.group_size) // group_size]
        if group_size % matrix.group_size or not all(
            np.array_equal(one, one[..., of_column]) for one in (matrix.zeros, matrix.scales)
        ):
            return None
    wide = matrix.wide_scales
    with np.errstate(over="ignore"):
        scales = wide.astype(dtype)
        if not (
            np.isfinite((wide * np.float32(largest)).astype(dtype)).all() and (scales.astype(np.float32) == wide).all()
        ):
            return None
    return matrix.zeros[..., of_group], scales[..., of_group]


def whole_groups(numbers: Array, group_size: int) -> Array:
    """(…, columns), with zeros behind each row up to the end of its last group."""
    missing = -numbers.shape[-1] % group_size
    return np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, missing)]) if missing else numbers
