"""GPTQ: the integers of a matrix, chosen so that the error of its products is small, and not that of its elements.

E. Frantar, S. Ashkboos, T. Hoefler, D. Alistarh, GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers, ICLR 2023. Columns are rounded to nearest one after the other, and what rounding one adds to the products
is taken from those that are not rounded yet: of H⁻¹ = Fᵀ F, F upper triangular,

    e_k = w_k - q_k          w_j becomes w_j - e_k F_kj / F_kk  for all j > k

H is the sum of the squares of what the matrix is multiplied by, its Gram matrix, with `DAMPING` of its mean diagonal
added to the diagonal. (The paper's H has a factor 2, which changes nothing.) Only NumPy's operations on elements and
`exact_products` are used, so that equal input has equal bytes everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mlcbuild.compiler.calibration.exact_products import Slices, product, sliced
from mlcbuild.compiler.calibration.inverse_factor import unit_inverse_factor
from mlcbuild.compiler.quantization.integer_grid import IntegerGrid
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.tensor import Array
from mlcbuild.errors import StageError

DAMPING = 0.01
_MORE = 10.0  # times the damping, where rounding has left a Gram matrix without a factor
_BLOCK = 128
_ROWS_ELEMENTS = 1 << 22  # of a matrix that are worked on at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """F of one input, for all matrices that read it, its rows divided by their diagonal's element. `order` is that in
    which columns are rounded, None for their own one; `factor` has rows and columns in that order."""

    factor: Array
    order: Array | None


def feedback(gram: Array, *, by_activations: bool) -> Feedback:
    """Of a Gram matrix (in, in). `by_activations` rounds those columns first whose numbers are largest ("act-order").

    A column whose numbers were all zero touches no other, and is rounded to nearest; so are all of a matrix whose input
    was never seen. A Gram matrix of fewer rows than columns is singular, and the damping makes it none. Raises
    StageError for one that is not finite.
    """
    diagonal = np.diagonal(gram).astype(np.float64)
    mean = math.fsum(diagonal) / len(diagonal)  # which NumPy does not sum in one order on all processors
    if not np.isfinite(gram).all():
        raise StageError("the sums of squares of a matrix's input are not finite: the model overflows on the text")
    order = np.argsort(-diagonal, kind="stable") if by_activations else None
    if not mean > 0:
        return Feedback(factor=np.eye(len(gram)), order=None)
    damped = gram.astype(np.float64)
    if order is not None:
        damped = damped[np.ix_(order, order)]
    ordered = np.diagonal(damped).copy()
    damping = DAMPING
    while True:
        np.fill_diagonal(damped, ordered + damping * mean)
        found = unit_inverse_factor(damped)
        if found is not None:
            return Feedback(factor=found, order=order)
        damping *= _MORE


def quantized(numbers: Array, using: Feedback, grid: IntegerGrid) -> IntegerMatrix:
    """The integers for a matrix (out, in) of numbers of the grid's dtype. Scales are float32.

    In the columns' own order, the scale of a group is that of its numbers as they are when the first of them is
    rounded; in another, that of the matrix's. Groups are as the grid has them, but for a last one that is short: then
    they are of so many columns as divide both, and neighbours have equal scales.
    """
    rows, columns = numbers.shape
    blocks = [_Block(begin=begin, end=end, after=_slices(using, begin, end)) for begin, end in _ranges(columns, grid)]
    codes = np.empty((rows, columns), np.uint8)
    groups = -(-columns // grid.group_size)
    zeros, scales = np.empty((rows, groups), np.uint8), np.empty((rows, groups), np.float32)
    step = max(1, _ROWS_ELEMENTS // columns)
    for first in range(0, rows, step):
        part = slice(first, first + step)
        chosen = _Rows(numbers[part], using, grid)
        for block in blocks:
            chosen.round(block)
        codes[part], zeros[part], scales[part] = chosen.codes.T, chosen.zeros.T, chosen.scales.T
    width = int(np.gcd(grid.group_size, columns))
    of_group = np.arange(0, columns, width) // grid.group_size
    return IntegerMatrix(
        codes=codes, zeros=zeros[:, of_group], scales=np.ascontiguousarray(scales[:, of_group]), scale_dtype="float32"
    )


def groups_of(columns: int, grid: IntegerGrid) -> int:
    """How many groups a row has in what `quantized` gives."""
    return columns // int(np.gcd(grid.group_size, columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Columns from `begin` to before `end` of the order, and how those after them follow: (columns after, columns)."""

    begin: int
    end: int
    after: Slices


def _slices(using: Feedback, begin: int, end: int) -> Slices:
    return sliced(np.ascontiguousarray(using.factor[begin:end, end:].T))


def _ranges(columns: int, grid: IntegerGrid) -> Iterator[tuple[int, int]]:
    """Blocks of whole groups, or parts of one: so all that is before a group has been taken from it when it begins."""
    size = grid.group_size
    step = size * (_BLOCK // size) if size <= _BLOCK else _BLOCK
    whole = columns if size <= _BLOCK else size
    for group in range(0, columns, whole):
        for begin in range(group, min(group + whole, columns), step):
            yield begin, min(begin + step, group + whole, columns)


class _Rows:
    """Some rows of a matrix, by columns: everything is (columns, rows)."""

    def __init__(self, numbers: Array, using: Feedback, grid: IntegerGrid) -> None:
        self._using, self._grid = using, grid
        columns = numbers.shape[1]
        wide = numbers.T.astype(np.float64)
        self.codes = np.empty(wide.shape, np.uint8)
        groups = -(-columns // grid.group_size)
        self.zeros = np.empty((groups, wide.shape[1]), np.uint8)
        self.scales = np.empty((groups, wide.shape[1]), np.float32)
        if using.order is not None:
            for group in range(groups):
                self._choose(group, wide[group * grid.group_size : (group + 1) * grid.group_size])
        self._now = wide if using.order is None else wide[using.order]  # with the errors of those that were rounded

    def round(self, block: _Block) -> None:
        begin, end, size = block.begin, block.end, self._grid.group_size
        errors = np.empty((end - begin, self._now.shape[1]))
        for place in range(begin, end):
            column = place if self._using.order is None else int(self._using.order[place])
            if self._using.order is None and place % size == 0:
                self._choose(place // size, self._now[place : place + size])
            errors[place - begin] = self._now[place] - self._round_one(column, self._now[place])
            follow = self._using.factor[place, place + 1 : end, np.newaxis]
            self._now[place + 1 : end] -= follow * errors[place - begin]
        if end < len(self._now):
            self._now[end:] -= product(block.after, sliced(np.ascontiguousarray(errors.T)))

    def _choose(self, group: int, numbers: Array) -> None:
        low, high = numbers.min(axis=0).astype(np.float32), numbers.max(axis=0).astype(np.float32)
        scales, self.zeros[group] = self._grid.of_range(low, high)
        self.scales[group] = scales.astype(np.float32)

    def _round_one(self, column: int, wanted: Array) -> Array:
        """Choose the codes of a column; gives the numbers that they stand for."""
        group = column // self._grid.group_size
        scales, zeros = self.scales[group], self.zeros[group].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            codes = np.rint(wanted / scales) + zeros
        codes = np.where(scales > 0, codes, zeros).clip(0, self._grid.largest)
        self.codes[column] = codes
        stands_for = (codes - zeros).astype(np.float32) * scales
        numbers: Array = stands_for.astype(self._grid.dtype).astype(np.float64)
        return numbers
