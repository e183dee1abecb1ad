"""Signed bytes with one scale a row, in NumPy.

For a row w of a matrix, in float32:

    scale = max|w| / 127
    q     = min(max(round(w / scale), -127), 127)      ties to even; 0 where the scale is 0
    w'    = q · scale                                  rounded to the model's type

so |w' - w| is at most scale · (1/2 + 127 · ε) with ε of float32, and the rounding to the model's type: half of its
epsilon of w', or half of its smallest number.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from mlcbuild.compiler.quantization.int8.scheme import LARGEST, Int8Scheme
from mlcbuild.compiler.quantization.integers import regrouped
from mlcbuild.compiler.quantization.scheme import Weight
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.tensor import Array, dtype_of

_LEAST = np.float32(1e-10)


class Int8Encoder:
    """The `IntegerEncoder` and `StaticScalesEncoder` of signed bytes. A static scale is 0, which says that there is
    none, unless one is given."""

    def __init__(self, scheme: Int8Scheme) -> None:
        self.scheme = scheme

    def encode(self, weight: Weight, numbers: Array) -> tuple[Array, ...]:
        if not self.scheme.covers(weight.role):
            return (numbers,)
        wide = numbers.astype(np.float32, copy=False)
        scales = _scales(wide)
        with np.errstate(divide="ignore", invalid="ignore"):
            integers = np.nan_to_num(np.clip(np.rint(wide / scales), -LARGEST, LARGEST), nan=0.0)
        return self._stored(weight, integers.astype(np.int8), scales)

    def store(self, weight: Weight, matrix: IntegerMatrix) -> tuple[Array, ...] | None:
        """Integers that are signed bytes with one scale a row."""
        if not self.scheme.covers(weight.role):
            return None
        columns = matrix.codes.shape[-1]
        found = regrouped(matrix, group_size=columns, groups=1, dtype=dtype_of("float32"), largest=LARGEST + 1)
        if found is None:
            return None
        zeros, scales = found
        integers = matrix.codes.astype(np.int16) - zeros.astype(np.int16)
        if integers.min() < -LARGEST - 1 or integers.max() > LARGEST:
            return None
        stored = self._stored(weight, integers.astype(np.int8), scales)
        return stored if np.isfinite(self.decode(weight, stored)).all() else None

    def decode(self, weight: Weight, stored: Sequence[Array]) -> Array:
        if not self.scheme.covers(weight.role):
            return stored[0]
        with np.errstate(over="ignore"):
            numbers: Array = (stored[0].astype(np.float32) * stored[1]).astype(dtype_of(self.scheme.model_dtype))
        return numbers

    def error_bound(self, weight: Weight, numbers: Array) -> Array:
        if not self.scheme.covers(weight.role):
            return np.zeros(numbers.shape)
        limits = ml_dtypes.finfo(numbers.dtype)  # type: ignore[no-untyped-call]
        single = np.finfo(np.float32)
        wide = np.abs(numbers.astype(np.float64))
        scale = np.broadcast_to(wide.max(axis=-1, keepdims=True) / LARGEST, wide.shape)
        step = scale * (0.5 + LARGEST * float(single.eps)) + LARGEST * float(single.smallest_subnormal)
        rounding = np.maximum((wide + step) * float(limits.eps), float(limits.smallest_subnormal)) / 2
        bound: Array = step + rounding
        return bound

    def with_static_scales(
        self, weight: Weight, stored: Sequence[Array], activation_scales: Array
    ) -> tuple[Array, ...] | None:
        """See `StaticScalesEncoder`."""
        if not self.scheme.static_scales(weight) or len(activation_scales) != 1:
            return None
        integers, scales, _ = stored
        return integers, scales, activation_scales.astype(np.float32)

    def static_scales_of(self, weight: Weight, largest: Array) -> Array | None:
        """See `StaticScalesEncoder`: largest / 127, as a token's own scale."""
        if not self.scheme.static_scales(weight):
            return None
        most = largest.max(keepdims=True).astype(np.float32)
        scales: Array = np.where(most > 0, np.maximum(most, _LEAST) / np.float32(LARGEST), np.float32(0))
        return scales

    def _stored(self, weight: Weight, integers: Array, scales: Array) -> tuple[Array, ...]:
        static = [np.zeros((1,), np.float32)] if self.scheme.static_scales(weight) else []
        return integers, scales, *static


def _scales(wide: Array) -> Array:
    """(…, out, 1) of rows (…, out, in)."""
    scales: Array = np.abs(wide).max(axis=-1, keepdims=True) / np.float32(LARGEST)
    return scales
