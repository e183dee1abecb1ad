"""Tensors to call a kernel with, the same every time: random, unless it reads more than numbers of them. There are
several sets of them, so that caches are cold.

A model's matrices pass through a cache once a token. So a kernel whose arguments would fit into the cache is called
with one set of them after the other, until all sets together do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mlcbuild.runtime.measuring.candidate_list import Argument

_TIMES_THE_CACHE = 3
_MOST_SETS = 64
_SCALE = 0.1  # of floats: products of many of them stay within float16


class ArgumentSets:
    """Tensors for a kernel's arguments, which `tensor_of` makes of arrays. A tensor is made once: those of a matrix are
    the same whatever sizes the others have. An argument that is a number is an array without axes among the arrays, and
    a number among the tensors."""

    def __init__(self, arguments: Sequence[Argument], tensor_of: Callable[[Any], Any]) -> None:
        self._arguments = arguments
        self._tensor_of = tensor_of
        self._arrays: dict[_Key, Any] = {}
        self._tensors: dict[tuple[_Key, int], Any] = {}

    @property
    def tensor_places(self) -> list[int]:
        """The places of the arguments that are tensors."""
        return [place for place, argument in enumerate(self._arguments) if argument.content.kind != "scalar"]

    def arrays(self, sizes: Mapping[str, int]) -> list[Any]:
        """An array for each argument. Raises TypeError for a type that NumPy does not know."""
        return [self._array(key) for key in self._keys(sizes)]

    def tensors(self, sizes: Mapping[str, int], number: int) -> list[Any]:
        """The `number`-th set of tensors."""
        found = []
        for key in self._keys(sizes):
            if self._arguments[key.place].content.kind == "scalar":
                found.append(self._array(key).item())
                continue
            if (key, number) not in self._tensors:
                self._tensors[key, number] = self._tensor_of(self._array(key))
            found.append(self._tensors[key, number])
        return found

    def _keys(self, sizes: Mapping[str, int]) -> list[_Key]:
        return [
            _Key(place, argument.sizes(sizes), argument.content.values(sizes))
            for place, argument in enumerate(self._arguments)
        ]

    def _array(self, key: _Key) -> Any:
        if key not in self._arrays:
            argument = self._arguments[key.place]
            random = np.random.default_rng([0, key.place])
            self._arrays[key] = _filled(key.shape, argument.dtype, argument.content.kind, key.values, random)
        return self._arrays[key]


class _Key(NamedTuple):
    place: int
    shape: tuple[int, ...]
    values: tuple[int | float, ...]


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


def _filled(
    shape: tuple[int, ...], dtype: str, kind: str, values: Sequence[int | float], random: np.random.Generator
) -> Any:
    """`kind` and `values` are those of a `Content`."""
    if kind == "random":
        return _random(shape, dtype, random)
    numbers = np.arange(math.prod(shape)).reshape(shape)
    if kind in ("scalar", "filled"):
        return np.full(shape, values[0], _float(dtype))
    if kind == "steps":
        return (numbers * values[0]).astype(dtype)
    if kind == "counted":
        return (values[0] + numbers % values[1]).astype(dtype)
    return random.permutation(numbers).astype(dtype)


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
