"""Tensors to call a kernel with: random, the same every time, and several sets of them so that caches are cold.

A model's matrices pass through a cache once a token. So a kernel whose arguments would fit into the cache is called
with one set of them after the other, until all sets together do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlcbuild.runtime.measuring.candidate_list import Argument

_TIMES_THE_CACHE = 3
_MOST_SETS = 64
_SCALE = 0.1  # of floats: products of many of them stay within float16


class ArgumentSets:
    """Tensors for a kernel's arguments, which `tensor_of` makes of arrays. A tensor is made once: those of a matrix are
    the same whatever sizes the others have."""

    def __init__(self, arguments: Sequence[Argument], tensor_of: Callable[[Any], Any]) -> None:
        self._arguments = arguments
        self._tensor_of = tensor_of
        self._arrays: dict[tuple[int, tuple[int, ...]], Any] = {}
        self._tensors: dict[tuple[int, tuple[int, ...], int], Any] = {}

    def arrays(self, sizes: Mapping[str, int]) -> list[Any]:
        """An array for each argument. Raises TypeError for a type that NumPy does not know."""
        found = []
        for place, argument in enumerate(self._arguments):
            key = (place, argument.sizes(sizes))
            if key not in self._arrays:
                self._arrays[key] = _random(key[1], argument.dtype, np.random.default_rng([0, place]))
            found.append(self._arrays[key])
        return found

    def tensors(self, sizes: Mapping[str, int], number: int) -> list[Any]:
        """The `number`-th set of tensors."""
        found = []
        for place, array in enumerate(self.arrays(sizes)):
            key = (place, array.shape, number)
            if key not in self._tensors:
                self._tensors[key] = self._tensor_of(array)
            found.append(self._tensors[key])
        return found


def set_count(arrays: Sequence[Any], cache_bytes: int) -> int:
    """How many sets of arguments of the size of these are more than a cache holds."""
    one = max(1, sum(int(array.nbytes) for array in arrays))
    return (
        1 if one > _TIMES_THE_CACHE * cache_bytes else min(_MOST_SETS, math.ceil(_TIMES_THE_CACHE * cache_bytes / one))
    )


def equal_bytes(one: Any, other: Any) -> bool:
    """Whether two arrays of one shape and type are the same, NaNs included."""
    return np.array_equal(
        np.ascontiguousarray(one).reshape(-1).view(np.uint8), np.ascontiguousarray(other).reshape(-1).view(np.uint8)
    )


def largest_difference(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest distance of floats, as a share of the largest value of their array; infinite where integers differ,
    or one is no number and the other is."""
    largest = 0.0
    for one, other in zip(found, expected, strict=True):
        if equal_bytes(one, other):
            continue
        if one.dtype.kind in "iub":
            return math.inf
        one, other = one.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(other)
        if not np.array_equal(np.isfinite(one), finite):
            return math.inf
        if finite.any():
            scale = float(np.abs(other[finite]).max()) or 1.0
            largest = max(largest, float(np.abs(one[finite] - other[finite]).max()) / scale)
    return largest


def _random(shape: tuple[int, ...], dtype: str, random: np.random.Generator) -> Any:
    if dtype.startswith(("uint", "int")):
        kind = np.dtype(dtype)
        # A signed integer may be an index, of which 0 is always one.
        return (
            random.integers(0, np.iinfo(kind).max, shape, dtype=kind, endpoint=True)
            if kind.kind == "u"
            else (np.zeros(shape, kind))
        )
    numbers = (random.standard_normal(shape, dtype=np.float32) * _SCALE).astype(np.float32)
    return numbers.astype(_float(dtype))


def _float(dtype: str) -> Any:
    if dtype == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(dtype)
