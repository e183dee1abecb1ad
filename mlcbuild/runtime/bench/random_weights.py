"""Weights for a library that comes without any: random, of numbers that keep what a model computes in range."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mlcbuild.runtime.expected_tensor import ExpectedTensor

_GROUP = 32  # places of a scale, about
_SMALL = 0x2B  # of the higher byte of a half: below 2 ** -4
_EXPONENT = 120  # of a scale that is a power of two, 2 ** -7
_EXTENSIONS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def random_weights(wanted: Sequence[ExpectedTensor]) -> Iterable[npt.NDArray[Any]]:
    """Integers of random bits; small scales; vectors of ones; matrices whose products are about as large as what they
    multiply. Bytes may be parts of halves, or exponents of scales: none of these is large. One array is in memory at a
    time, and they are the same each time."""
    random = np.random.default_rng(0)
    for tensor in wanted:
        count = math.prod(tensor.shape)
        dtype = np.dtype(getattr(ml_dtypes, tensor.dtype) if tensor.dtype in _EXTENSIONS else tensor.dtype)
        if dtype == np.uint8 and tensor.name.endswith("scale"):
            yield np.full(tensor.shape, _EXPONENT, dtype)
        elif dtype.kind in "iu":
            bits = np.frombuffer(random.bytes(count * dtype.itemsize), dtype)
            yield (bits & _SMALL if dtype == np.uint8 else bits).reshape(tensor.shape)
        elif tensor.name.endswith("scale"):
            yield np.full(tensor.shape, 0.2 * (tensor.shape[-1] * _GROUP) ** -0.5 if tensor.shape else 1.0).astype(
                dtype
            )
        elif len(tensor.shape) == 1:
            yield np.ones(tensor.shape, dtype)
        else:
            numbers = random.standard_normal(tensor.shape, np.float32) * np.float32(tensor.shape[-1] ** -0.5)
            yield numbers.astype(dtype)
