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

    None where a group of the scheme has several scales, and where a scale, or `largest` times it, is no number of the
    type.
    """
    if matrix.scales.shape[-1] > 1 and matrix.group_size % group_size:
        return None
    wide = matrix.wide_scales
    with np.errstate(over="ignore"):
        scales = wide.astype(dtype)
        if not (
            np.isfinite((wide * np.float32(largest)).astype(dtype)).all() and (scales.astype(np.float32) == wide).all()
        ):
            return None
    of_group = np.arange(groups) * group_size // matrix.group_size
    return matrix.zeros[..., of_group], scales[..., of_group]


def whole_groups(numbers: Array, group_size: int) -> Array:
    """(…, columns), with zeros behind each row up to the end of its last group."""
    missing = -numbers.shape[-1] % group_size
    return np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, missing)]) if missing else numbers
