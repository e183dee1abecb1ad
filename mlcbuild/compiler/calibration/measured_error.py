"""The squared error that a changed matrix makes in its outputs, with the same bits on every processor.

For rows x of a layer's input, a matrix W + Δ (out, in) is off by x Δᵀ, and the sum of squares of that over the rows is
trace(Δ G Δᵀ) for G = Σ xᵀ x (`statistics`).

Methods compare such errors, so they must not depend on the order in which a BLAS adds. G and Δ are rounded to integers
of 18 bits: a product of two, and a sum of up to 2^17 of them, has at most 53 bits, and is exact in float64 in whatever
order it is made. Columns are scaled before that, by powers of two that are near the inputs' magnitudes (the roots of
G's diagonal). So columns with small inputs lose nothing that matters: what is rounded away is about 2^-18 of the error.
"""

from __future__ import annotations

import numpy as np

from mlcbuild.compiler.weights.tensor import Array

_BITS = 18
_HALF = 26  # bits of the lower part of such a sum; products of either part and integers can be summed in 64 bits
_BLOCK = 256  # rows of a gram that are rounded at a time


class MeasuredError:
    """Errors for one input, of a gram (in, in) float32."""

    def __init__(self, gram: Array) -> None:
        columns = len(gram)
        self._columns = _powers_of_two(np.sqrt(np.maximum(np.diagonal(gram), 0).astype(np.float64)))
        inverse = np.divide(1, self._columns, out=np.zeros_like(self._columns), where=self._columns > 0)
        self._gram = np.empty(gram.shape, np.float64)
        for begin in range(0, columns, _BLOCK):
            block = gram[begin : begin + _BLOCK].astype(np.float64)
            scaled = block * inverse[begin : begin + _BLOCK, np.newaxis] * inverse
            self._gram[begin : begin + _BLOCK] = np.rint(np.clip(scaled, -1, 1) * 2.0**_BITS)

    def total(self, delta: Array) -> float:
        """That of a difference (out, in), summed over all rows."""
        scaled = delta.astype(np.float64) * self._columns
        largest = float(np.abs(scaled).max(initial=0.0))
        if not np.isfinite(largest):
            return float("inf")
        if not largest:
            return 0.0
        unit = float(_powers_of_two(np.array([largest]))[0]) * 2.0**-_BITS
        rounded = np.rint(scaled / unit)
        products, integers = rounded @ self._gram, rounded.astype(np.int64)
        upper = np.floor(products * 2.0**-_HALF)
        products -= upper * 2.0**_HALF
        parts = [int(sum((part.astype(np.int64) * integers).sum(axis=1).tolist())) for part in (products, upper)]
        total = max(0, parts[0] + (parts[1] << _HALF))
        return float(total * unit * unit * 2.0**-_BITS)


class MeasuredGroups:
    """Errors of groups of columns by themselves, each by its own block of a gram (in, in); a row's last group may be
    short."""

    def __init__(self, gram: Array, group_size: int) -> None:
        columns = len(gram)
        groups = -(-columns // group_size)
        self._group_size = group_size
        blocks = np.zeros((groups, group_size, group_size))
        for group in range(groups):
            part = gram[group * group_size : (group + 1) * group_size, group * group_size : (group + 1) * group_size]
            blocks[group, : len(part), : len(part)] = part
        diagonal = np.maximum(np.diagonal(blocks, axis1=1, axis2=2), 0)
        self._columns = _powers_of_two(np.sqrt(diagonal))
        inverse = np.divide(1, self._columns, out=np.zeros_like(self._columns), where=self._columns > 0)
        scaled = blocks * inverse[:, :, np.newaxis] * inverse[:, np.newaxis, :]
        self._blocks = np.rint(np.clip(scaled, -1, 1) * 2.0**_BITS)

    def errors(self, delta: Array, largest: Array) -> Array:
        """Those of differences (out, groups, group_size), none of which is above `largest` (out, groups): (out, groups)
        int64, in units that `largest` alone decides."""
        units = _powers_of_two(largest.astype(np.float64))[:, :, np.newaxis] * self._columns.max(axis=1)[:, np.newaxis]
        inverse = np.divide(2.0**_BITS, units, out=np.zeros_like(units), where=units > 0)
        rounded = np.rint(delta.astype(np.float64) * self._columns * inverse)
        products = np.matmul(rounded.transpose(1, 0, 2), self._blocks).transpose(1, 0, 2)
        whole = np.rint(products * 2.0**-_BITS).astype(np.int64)
        found: Array = (whole * rounded.astype(np.int64)).sum(axis=2)
        return found


def _powers_of_two(numbers: Array) -> Array:
    """The smallest powers of two above numbers that are not negative; 0 for 0."""
    _, exponents = np.frexp(numbers)
    return np.where(numbers > 0, np.ldexp(1.0, exponents), 0.0)
