"""The factor F of a symmetric matrix's inverse, H⁻¹ = Fᵀ F, upper triangular, in float64.

F is Cholesky's factor of the inverse, as GPTQ needs it. It is the inverse of R in H = R Rᵀ, with R upper triangular
too, which is found from the last column to the first. So both are made in one walk over blocks of columns, in place,
without the inverse of H. A block is done with NumPy's multiplications, subtractions, divisions and square roots of
elements, which IEEE 754 defines to the bit; what the columns before it get from it are `exact_products`. So equal
matrices have equal factors on every machine.
"""

from __future__ import annotations

import numpy as np

from mlcbuild.compiler.calibration.exact_products import product, sliced
from mlcbuild.compiler.weights.tensor import Array

_BLOCK = 128
_PANEL = 1024  # columns that one product makes


def unit_inverse_factor(matrix: Array) -> Array | None:
    """F (n, n) with each row divided by its element of the diagonal, which is one then; zeros are below. Of the matrix
    (n, n) the upper triangle is read. None where it is not positive definite."""
    made = matrix.astype(np.float64)  # F behind the block at hand, what is left of H before it, and R⁻¹'s right sides
    size = len(made)
    for begin in reversed(range(0, size, _BLOCK)):
        end = min(begin + _BLOCK, size)
        columns = np.ascontiguousarray(made[:end, begin:end].T)  # a row is a column of R
        if not _factorize(columns, begin):
            return None
        made[:end, begin:end] = 0
        made[end:, begin:end] = 0
        rows = made[begin:end, begin:]
        np.fill_diagonal(rows, 1)
        _solve(columns[:, begin:], rows)
        before, behind = sliced(np.ascontiguousarray(columns[:, :begin].T)), sliced(np.ascontiguousarray(rows.T))
        for first in range(0, begin, _PANEL):
            last = min(first + _PANEL, begin)
            made[:last, first:last] -= product(before.rows(0, last), before.rows(first, last))
        for first in range(begin, size, _PANEL):
            last = min(first + _PANEL, size)
            made[:begin, first:last] -= product(before, behind.rows(first - begin, last - begin))
    made /= np.diagonal(made).copy()[:, np.newaxis]
    return made


def _factorize(columns: Array, begin: int) -> bool:
    """Make columns of R of those of H, from which all later ones have been taken. Row i is column `begin` + i, up to
    the last one's diagonal. False where one is not positive."""
    for row in reversed(range(len(columns))):
        place = begin + row
        pivot = columns[row, place]
        if not pivot > 0:
            return False
        columns[row] /= np.sqrt(pivot)
        columns[row, place + 1 :] = 0
        columns[:row, : place + 1] -= columns[row, begin:place, np.newaxis] * columns[row, : place + 1]
    return True


def _solve(columns: Array, rows: Array) -> None:
    """Make of the rows B those of X with R X = B, where row i of `columns` is column i of the upper triangular R."""
    for row in reversed(range(len(rows))):
        rows[row] /= columns[row, row]
        rows[:row] -= columns[row, :row, np.newaxis] * rows[row]
