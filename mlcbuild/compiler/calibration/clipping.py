"""Clipping: groups whose largest weights are cut, so that the others lie on a finer grid.

As AWQ does (arXiv 2306.00978, its published code): of the fractions 20/20, 19/20, … 10/20 of a group's largest
magnitude, that one with the least error is its limit. The error of a row's group is δ G δᵀ, for the difference δ that
clipping and the scheme's own rounding make, and the block G of the gram that belongs to the group's columns. A group is
clipped only where that makes it better.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlcbuild.compiler.calibration.matrices import Rounding, blocks
from mlcbuild.compiler.calibration.measured_error import MeasuredGroups
from mlcbuild.compiler.calibration.scales import WHOLE, clipped
from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.quantization.integers import whole_groups
from mlcbuild.compiler.weights.tensor import Array

FRACTIONS = range(WHOLE - 1, WHOLE // 2 - 1, -1)


def search_clipping(parameter: Parameter, matrix: Array, measured: MeasuredGroups, rounding: Rounding) -> Array:
    """The fractions (out, groups) uint8, in twentieths, of a matrix (out, in) whose scales are carried out already."""
    return np.concatenate(list(_of_blocks(parameter, matrix, measured, rounding)))


def _of_blocks(parameter: Parameter, matrix: Array, measured: MeasuredGroups, rounding: Rounding) -> Iterator[Array]:
    size = rounding.group_size(parameter)

    def by_groups(rows: Array) -> Array:
        return whole_groups(rows, size).reshape(len(rows), -1, size)

    for rows in blocks(matrix):
        largest = np.abs(by_groups(rows)).max(axis=2)
        best = np.full(largest.shape, WHOLE, np.uint8)

        def errors(fractions: Array, rows: Array = rows, largest: Array = largest) -> Array:
            rounded = rounding(parameter, clipped(rows, fractions, size))
            assert rounded is not None
            # What is stored is within twice the largest magnitude for any scheme that can store it.
            return measured.errors(by_groups(rounded - rows), 2 * largest)

        least = errors(best)
        for fraction in FRACTIONS:
            found = errors(np.full_like(best, fraction))
            is_better = found < least
            best = np.where(is_better, np.uint8(fraction), best)
            least = np.where(is_better, found, least)
        yield best
