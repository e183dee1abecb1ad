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
_EXTENSIONS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def random_weights(wanted: Sequence[ExpectedTensor]) -> Iterable[npt.NDArray[Any]]:
    """Integers of random bits; small scales; vectors of ones; matrices whose products are about as large as what they
    multiply. One array is in memory at a time, and they are the same each time."""
    random = np.random.default_rng(0)
    for tensor in wanted:
        count = math.prod(tensor.shape)
        dtype = np.dtype(getattr(ml_dtypes, tensor.dtype) if tensor.dtype in _EXTENSIONS else tensor.dtype)
        if dtype.kind in "iu":
            yield np.frombuffer(random.bytes(count * dtype.itemsize), dtype).reshape(tensor.shape)
        elif tensor.name.endswith("scale"):
            yield np.full(tensor.shape, 0.2 * (tensor.shape[-1] * _GROUP) ** -0.5 if tensor.shape else 1.0).astype(
                dtype
            )
        elif len(tensor.shape) == 1:
            yield np.ones(tensor.shape, dtype)
        else:
            numbers = random.standard_normal(tensor.shape, np.float32) * np.float32(tensor.shape[-1] ** -0.5)
            yield numbers.astype(dtype)
