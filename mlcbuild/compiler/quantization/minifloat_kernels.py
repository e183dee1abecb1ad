"""Floats of 8 and 4 bits in kernels: read by their bits, and numbers rounded to them.

Where a target has no instructions for such types, TVM 0.27 converts them by arithmetic on bits that is wrong for zero
and for subnormal numbers. Here a number is read as a float16 whose exponent is too small by a constant, which costs two
operations on integers on every target and is exact for subnormals too; and numbers are rounded in float32.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from mlcbuild.compiler.quantization.minifloat import Minifloat

Expression = Any  # TVM's expressions carry no types that a checker can read.

_HALF_BITS, _HALF_MANTISSA, _HALF_BIAS = 16, 10, 15
_SINGLE_MANTISSA, _SINGLE_BIAS = 23, 127


def read_bits(bits: Expression, of: Minifloat) -> Expression:
    """The float32 that the low bits of an unsigned integer stand for; higher ones are zero. NaN is not told apart."""
    bits = bits.astype("uint16")
    sign_bit, width = 1 << (of.bits - 1), of.bits
    sign = (bits & tirx.const(sign_bit, "uint16")) << tirx.const(_HALF_BITS - width, "uint16")
    magnitude = (bits & tirx.const(sign_bit - 1, "uint16")) << tirx.const(_HALF_MANTISSA - of.mantissa_bits, "uint16")
    half = tirx.reinterpret("float16", sign | magnitude).astype("float32")
    return half * tirx.const(2.0 ** (_HALF_BIAS - of.bias), "float32") if of.bias != _HALF_BIAS else half


def read_highest_bits(word: Expression, of: Minifloat) -> Expression:
    """The float32 that the highest bits of a uint32 stand for, whatever the others are. NaN is not told apart.

    Shifted as a signed integer, the word has its sign where a float16 in its upper half has it, and its exponent and
    mantissa too: half of the operations of `read_bits` on what was shifted down.
    """
    down = _HALF_BITS - 1 - _HALF_MANTISSA - (of.bits - 1 - of.mantissa_bits)
    shifted = tirx.reinterpret("uint32", tirx.reinterpret("int32", word) >> tirx.const(down, "int32"))
    mask = 1 << 31 | ((1 << (of.bits - 1)) - 1) << (32 - of.bits - down)
    bits = ((shifted & tirx.const(mask, "uint32")) >> tirx.const(16, "uint32")).astype("uint16")
    half = tirx.reinterpret("float16", bits).astype("float32")
    return half * tirx.const(2.0 ** (_HALF_BIAS - of.bias), "float32") if of.bias != _HALF_BIAS else half


def read(element: Expression, of: Minifloat) -> Expression:
    """The float32 that an element of a buffer of the type stands for."""
    return read_bits(tirx.reinterpret("uint8", element), of)


def read_power(exponent: Expression) -> Expression:
    """2^(e - 127) for a byte e of the type E8M0, in float32; 255, which is no number, gives infinity."""
    bits = exponent.astype("uint32") << tirx.const(_SINGLE_MANTISSA, "uint32")
    least = tirx.const(1 << (_SINGLE_MANTISSA - 1), "uint32")  # 2^-127, which is subnormal
    return tirx.reinterpret("float32", tirx.max(bits, least))


def rounded(number: Expression, to: Minifloat) -> Expression:
    """A float32 rounded to the nearest number of the type, ties to even, in float32. Beyond the largest it is that.

    |x| is a multiple of 2^e, the power of two at or below it (or the least that normal numbers have); 2^-e is made of
    its exponent's bits, so that both multiplications are exact.
    """
    largest = tirx.const(to.largest, "float32")
    number = tirx.max(tirx.min(number, largest), -largest)
    mask = tirx.const(0x7F800000, "uint32")
    least = tirx.const((to.least_exponent + _SINGLE_BIAS) << _SINGLE_MANTISSA, "uint32")
    power = tirx.max(tirx.reinterpret("uint32", number) & mask, least)
    inverse = tirx.const((2 * _SINGLE_BIAS) << _SINGLE_MANTISSA, "uint32") - power
    steps = tirx.const(2.0**to.mantissa_bits, "float32")
    whole = tirx.nearbyint(number * (tirx.reinterpret("float32", inverse) * steps))
    return whole * (tirx.reinterpret("float32", power) * tirx.const(math.ldexp(1, -to.mantissa_bits), "float32"))
