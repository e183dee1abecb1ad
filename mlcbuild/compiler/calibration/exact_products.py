"""Products of matrices in float64 whose bits depend on no processor.

A BLAS sums in an order that differs between processors and numbers of threads, and so do its roundings. Here nothing is
rounded while it sums. Each row of the left matrix, and each column of the right one, is split into two slices of
integers, times a power of two:

    x = 2^(e - b) (high + 2^-b low)        |high| <= 2^b, |low| <= 2^(b-1), 2^e above the largest |x| of its row

and b is so small that all sums of products of slices are integers up to 2^53, which float64 has. So every order of
summing gives the same number (K. Ozaki, T. Ogita, S. Oishi, S. M. Rump, Error-free transformations of matrix
multiplication by using fast routines of matrix multiplication, Numerical Algorithms 59, 2012). What is left out, the
product of the low slices and the rest behind them, is below k 2^(1 - 2b) of the largest of the row times that of the
column: 2^-38 for the k = 128 that callers have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlcbuild.compiler.weights.tensor import Array

_MANTISSA = 53


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """The rows of a matrix (n, k): integers in float64, `high` and `low` (n, k), and their `exponents` (n,)."""

    high: Array
    low: Array
    exponents: Array

    def rows(self, begin: int, end: int) -> Slices:
        """Some of the rows."""
        return Slices(high=self.high[begin:end], low=self.low[begin:end], exponents=self.exponents[begin:end])


def sliced(rows: Array) -> Slices:
    """The rows of a matrix (n, k) of float64, all finite."""
    bits = _bits(rows.shape[1])
    _, exponents = np.frexp(np.abs(rows).max(axis=1, initial=0.0))
    scaled = np.ldexp(rows, (bits - exponents)[:, np.newaxis])
    high = np.rint(scaled)
    scaled -= high
    low = np.rint(np.ldexp(scaled, bits))
    return Slices(high=high, low=low, exponents=exponents)


def product(left: Slices, right: Slices) -> Array:
    """(m, k), (n, k) → left rightᵀ (m, n) float64."""
    bits = _bits(left.high.shape[1])
    # The two products of a high and a low slice are summed as one.
    crossed = np.hstack([left.high, left.low]) @ np.hstack([right.low, right.high]).T
    crossed *= 2.0**-bits
    crossed += left.high @ right.high.T
    exponents = left.exponents[:, np.newaxis] + right.exponents[np.newaxis, :] - 2 * bits
    found: Array = np.ldexp(crossed, exponents, out=crossed)
    return found


def _bits(terms: int) -> int:
    """Of a slice, for sums of so many products: terms 2^(2 bits) <= 2^53."""
    return (_MANTISSA - max(terms - 1, 1).bit_length()) // 2
