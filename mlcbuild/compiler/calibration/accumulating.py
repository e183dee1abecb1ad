"""Sums over the rows of one input, in an order that no machine changes.

Grams are summed by kernels of the library, GRAM_ROWS rows at a time. The other sums are NumPy's, element by element and
one row after the other, in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcbuild.compiler.calibration.observation import GRAM_ROWS, gram_function
from mlcbuild.compiler.weights.tensor import Array
from mlcbuild.runtime.machine import Machine


class InputSums:
    """The statistics of an input of `width` numbers a row, of the rows that were added."""

    def __init__(self, machine: Machine, width: int) -> None:
        self._machine = machine
        self._add_to_gram = machine.entry(gram_function(width))
        self._gram: Any = machine.tensor(np.zeros((width, width), np.float32))
        self._absolute_sum = np.zeros(width, np.float64)
        self._maximum = np.zeros(width, np.float32)
        self.rows = 0

    def add(self, rows: Array) -> None:
        """Rows (n, width) in float32."""
        absolute = np.abs(rows)
        self._maximum = np.maximum(self._maximum, absolute.max(axis=0))
        for row in absolute:
            self._absolute_sum += row
        for begin in range(0, len(rows), GRAM_ROWS):
            part = np.zeros((GRAM_ROWS, rows.shape[1]), np.float32)
            some = rows[begin : begin + GRAM_ROWS]
            part[: len(some)] = some
            self._gram = self._add_to_gram(self._gram, self._machine.tensor(part))
        self.rows += len(rows)

    @property
    def gram(self) -> Array:
        numbers: Array = self._gram.numpy()
        return numbers

    @property
    def absolute_sum(self) -> Array:
        return self._absolute_sum.astype(np.float32)

    @property
    def maximum(self) -> Array:
        return self._maximum
