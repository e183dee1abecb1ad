"""Numbers rounded to floats of 8 and 4 bits, in NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from mlcbuild.compiler.quantization.minifloat import Minifloat
from mlcbuild.compiler.weights.tensor import Array


def rounded(numbers: Array, to: Minifloat) -> Array:
    """float32 numbers as the type of `to`: to nearest, ties to even, and to the largest where they are beyond it."""
    return np.clip(numbers, -to.largest, to.largest).astype(getattr(ml_dtypes, to.dtype))


def half_step(magnitudes: Array, to: Minifloat) -> Array:
    """How far `rounded` may be from numbers of these magnitudes, in float64: half of the distance between neighbours,
    and what is beyond the largest."""
    wide = magnitudes.astype(np.float64, copy=False)
    _, exponents = np.frexp(wide)  # of numbers in [1/2, 1)
    exponents = np.where(wide > 0, exponents - 1, to.least_exponent)
    step = np.ldexp(0.5, np.maximum(exponents, to.least_exponent) - to.mantissa_bits)
    half: Array = np.maximum(step, wide - to.largest)
    return half
