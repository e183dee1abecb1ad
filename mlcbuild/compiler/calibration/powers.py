"""Powers of numbers with the same bits on every processor.

`pow` of a C library, or of NumPy, may differ in its last bit from one processor to the next. Square roots and products
may not (IEEE 754, section 5.4.1), and of these any power is made whose exponent is a sum of halves, quarters, …
"""

from __future__ import annotations

import numpy as np

from mlcbuild.compiler.weights.tensor import Array

_BITS = 10
STEPS = 1 << _BITS
"""Exponents are whole numbers of this part of one."""


def power(numbers: Array, exponent: float) -> Array:
    """Positive numbers to the power of an exponent from 0 to 1, which is rounded to 1/1024; in float64."""
    if not 0 <= exponent <= 1:
        raise ValueError(f"no exponent from 0 to 1: {exponent}")
    steps = round(exponent * STEPS)
    root = numbers.astype(np.float64)
    made = np.ones_like(root) if steps < STEPS else root
    for bit in reversed(range(_BITS)):
        root = np.sqrt(root)
        if steps >> bit & 1:
            made = made * root
    return made
