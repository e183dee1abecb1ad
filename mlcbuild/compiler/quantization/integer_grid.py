"""The integers that a scheme has for a matrix, for those who choose them one column after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mlcbuild.compiler.quantization.scheme import IntegerEncoder, Weight
from mlcbuild.compiler.weights.tensor import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerGrid:
    """A code from 0 to `largest` an element, and a scale and a zero for `group_size` columns of a row, of which the
    last group may be short.

    `of_range` gives the scales, of the model's dtype, and the zeros (uint8) of groups whose least and largest numbers
    are given, in float32: those that the scheme's encoder takes.
    """

    group_size: int
    largest: int
    dtype: np.dtype[Any]
    of_range: Callable[[Array, Array], tuple[Array, Array]]


@runtime_checkable
class GridEncoder(IntegerEncoder, Protocol):
    """An encoder of integers in groups of columns: each choice of codes, with the scales and zeros of `of_range`, is
    one that `store` keeps."""

    def grid(self, weight: Weight) -> IntegerGrid | None:
        """The integers for a parameter; None for one that the scheme does not quantize."""
