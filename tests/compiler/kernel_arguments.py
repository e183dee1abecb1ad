"""Arrays for kernels that read what a scheme stores."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from mlcbuild.compiler.quantization.ggml.scheme import GgmlScheme
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.compiler.weights.block_types import BLOCK_TYPES
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler.kernel_running import Array


def random_arguments(kernel: tirx.PrimFunc, scheme: QuantizationScheme, *, size: int) -> list[Array]:
    """An array for each parameter of a kernel that reads what `scheme` stores; axes that are known at run time have
    `size` places. Numbers of experts are from 0 to 3."""
    random = np.random.default_rng(3)
    return [
        _random(random, scheme, [_size(each, size) for each in buffer.shape], str(buffer.dtype))
        for buffer in kernel.params
    ]


def _random(random: np.random.Generator, scheme: QuantizationScheme, shape: list[int], dtype: str) -> Array:
    if dtype == "uint8" and isinstance(scheme, GgmlScheme):
        return _blocks(random, scheme, shape)
    if dtype.startswith("float8"):
        return random.standard_normal(shape).astype(dtype_of(dtype))
    if dtype == "uint8":
        return random.integers(125, 129, shape).astype(np.uint8)
    if dtype == "int8":
        return random.integers(-127, 128, shape).astype(np.int8)
    if dtype == "int32":
        return random.integers(0, 4, shape).astype(np.int32)  # numbers of experts
    if dtype.startswith("uint"):
        return random.integers(0, 1 << 32, shape, dtype=np.uint32)
    return random.standard_normal(shape).astype(dtype_of(dtype))


def _blocks(random: np.random.Generator, scheme: GgmlScheme, shape: list[int]) -> Array:
    """Blocks of any bits, whose float16 numbers are finite."""
    *rows, row_bytes = shape
    block = BLOCK_TYPES[scheme.block]
    data = random.integers(0, 256, (*rows, row_bytes // block.size, block.size)).astype(np.uint8)
    for place in {"Q8_0": [0], "Q6_K": [208]}.get(scheme.block, [0, 2]):
        halves = random.uniform(1e-3, 1e-2, (*data.shape[:-1], 1)).astype("<f2")
        data[..., place : place + 2] = halves.view(np.uint8)
    return data.reshape(shape)


def _size(size: Any, of_unknown: int) -> int:
    return int(size) if isinstance(size, int | tirx.IntImm) else of_unknown
