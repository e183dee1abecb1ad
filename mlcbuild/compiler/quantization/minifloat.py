"""Floats of 8 and 4 bits, as numbers are stored in them. Neither NumPy nor tvm is imported here.

E4M3 ("FN": finite, without infinities) and E5M2: Micikevicius et al., FP8 Formats for Deep Learning, 2022. E2M1 and the
scales E8M0: OCP Microscaling Formats 1.0, sections 5.3 and 5.4.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Minifloat:
    """A sign, `exponent_bits` and `mantissa_bits`, with numbers below the least exponent's as in IEEE 754. `dtype` is
    the name of the type, in NumPy's extension ml_dtypes and in TVM."""

    dtype: str
    exponent_bits: int
    mantissa_bits: int
    largest: float

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        """What is added to an exponent to store it."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def least_exponent(self) -> int:
        """That of the smallest normal number, 2^least_exponent."""
        return 1 - self.bias


E4M3 = Minifloat(dtype="float8_e4m3fn", exponent_bits=4, mantissa_bits=3, largest=448.0)
E5M2 = Minifloat(dtype="float8_e5m2", exponent_bits=5, mantissa_bits=2, largest=57344.0)
E2M1 = Minifloat(dtype="float4_e2m1fn", exponent_bits=2, mantissa_bits=1, largest=6.0)
