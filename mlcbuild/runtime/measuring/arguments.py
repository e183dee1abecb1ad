"""Tensors to call a kernel with: random, the same every time, and several sets of them so that caches are cold.

A model's matrices pass through a cache once a token. So a kernel whose arguments would fit into the cache is called
with one set of them after the other, until all sets together do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlcbuild.runtime.measuring.candidate_list import Argument

_TIMES_THE_CACHE = 3
_MOST_SETS = 64
_SCALE = 0.1  # of floats: products of many of them stay within float16


def random_arrays(arguments: Sequence[Argument], sizes: Mapping[str, int], *, seed: int = 0) -> list[Any]:
    """An array for each argument. Raises TypeError for a type that NumPy does not know."""
    random = np.random.default_rng(seed)
    return [_random(argument.sizes(sizes), argument.dtype, random) for argument in arguments]


def set_count(arrays: Sequence[Any], cache_bytes: int) -> int:
    """How many sets of arguments of the size of these are more than a cache holds."""
    one = max(1, sum(int(array.nbytes) for array in arrays))
    return (
        1 if one > _TIMES_THE_CACHE * cache_bytes else min(_MOST_SETS, math.ceil(_TIMES_THE_CACHE * cache_bytes / one))
    )


def largest_difference(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest distance of floats, as a share of the largest value of their array; infinite where integers differ,
    or one is no number and the other is."""
    largest = 0.0
    for one, other in zip(found, expected, strict=True):
        if one.dtype.kind in "iub":
            largest = max(largest, 0.0 if np.array_equal(one, other) else math.inf)
            continue
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
