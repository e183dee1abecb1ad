"""A checkpoint's tensor in memory, and conversions between the floating-point types of checkpoints and
models.

A checkpoint's bfloat16 is held as its 16 bits, in uint16, and its floats of 8 bits in uint8; a model's are of the types
that ml_dtypes gives NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mlcbuild.errors import StageError

Array = npt.NDArray[Any]
Rows = tuple[int, int]  # along the first axis of a tensor: from the one to before the other

STORAGE: Mapping[str, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
}
"""Types of weights."""
BYTES = "uint8"
FLOAT8 = "float8_e4m3fn"
PARTS: Mapping[str, np.dtype[Any]] = {
    BYTES: np.dtype("u1"),
    "int8": np.dtype("i1"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    FLOAT8: np.dtype("u1"),
}
"""Types of what quantized weights are made of."""
_READABLE: Mapping[str, np.dtype[Any]] = {**STORAGE, **PARTS}
_PIECE = 1 << 16  # elements that are converted together, whose temporaries stay in a processor's cache
_EXPONENTS = {"float16": 0x7C00, "bfloat16": 0x7F80}
"""The bits of an infinity."""


# Types that NumPy has of ml_dtypes.
_EXTENSIONS = ("bfloat16", FLOAT8, "float8_e5m2")


def dtype_of(name: str) -> np.dtype[Any]:
    """NumPy's type of a name in TVM's words, such as `float16`, `bfloat16`, `float8_e4m3fn` or `uint32`."""
    return np.dtype(getattr(ml_dtypes, name) if name in _EXTENSIONS else name)


def is_readable(dtype: str) -> bool:
    """Whether tensors of a type can be read."""
    return dtype in _READABLE


def storage_of(dtype: str) -> np.dtype[Any]:
    """NumPy's type for a checkpoint's tensors in memory."""
    return _READABLE[dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDescription:
    """Name, type and shape of a tensor that has not been read.

    Weights are of a type in `STORAGE`, and what quantized ones are made of of one in `PARTS`; any other `dtype` is the
    checkpoint's own word for a type that is described and cannot be read.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def size_bytes(self) -> int:
        return self.elements * storage_of(self.dtype).itemsize

    def part(self, rows: Rows | None) -> TensorDescription:
        """The description of some rows of the tensor; None is all."""
        return self if rows is None else replace(self, shape=(rows[1] - rows[0], *self.shape[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor with its numbers: `data` has the type `storage_of(description.dtype)` and the described shape."""

    description: TensorDescription
    data: Array

    def __post_init__(self) -> None:
        described = self.description
        if self.data.dtype != storage_of(described.dtype) or self.data.shape != described.shape:
            raise ValueError(f"{described} does not describe {self.data.dtype} {self.data.shape}")

    def numbers(self, dtype: str) -> Array:
        """The numbers as `float32`, `float16` or `bfloat16`, rounded to nearest, ties to even.

        Raises StageError for a number that is not finite, or not once it is rounded.
        """
        kind, source = dtype_of(dtype), self.data.reshape(-1)
        if self.description.dtype == "bfloat16":
            source = source.view(dtype_of("bfloat16"))
        numbers = source if source.dtype == kind else np.empty(source.shape, kind)
        for begin in range(0, source.size, _PIECE):
            piece = slice(begin, begin + _PIECE)
            if numbers is not source:
                with np.errstate(over="ignore", invalid="ignore"):
                    numbers[piece] = source[piece].astype(kind)
            if not _are_finite(numbers[piece]):
                with np.errstate(invalid="ignore"):
                    first = begin + int(np.argmin(np.isfinite(numbers[piece])))
                place = ", ".join(str(int(index)) for index in np.unravel_index(first, self.data.shape))
                raise StageError(
                    f"the tensor {self.description.name} holds {float(source[first])} at ({place}), "
                    f"which is not a finite {dtype}"
                )
        return numbers.reshape(self.data.shape)


def _are_finite(numbers: Array) -> bool:
    exponent = _EXPONENTS.get(numbers.dtype.name)
    if exponent is None:
        return bool(np.isfinite(numbers).all())
    return int((numbers.view(np.uint16) & np.uint16(0x7FFF)).max()) < exponent


def bfloat16_bits(numbers: Array) -> Array:
    """The bits (uint16) of float32 numbers rounded to bfloat16: to nearest, ties to even.

    A number beyond bfloat16's largest is truncated to it and not rounded to infinity, as TVM's
    `f32-to-bf16` encoding has it.
    """
    bits = numbers.astype("<f4", copy=False).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    beyond = (bits & np.uint32(0x7FFFFFFF)) >= np.uint32(0x7F7F0000)
    return (np.where(beyond, bits, rounded) >> np.uint32(16)).astype("<u2")
