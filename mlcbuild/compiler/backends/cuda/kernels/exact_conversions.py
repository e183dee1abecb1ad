"""Small integers become floats by bits, as a GPU converts a quarter as many numbers as it adds.

A float16 of 1024 + i has the integer i, below 1024, in its low bits; a float32 of 2**23 + i one below 2**23. What is
subtracted behind the conversion is subtracted with it. All of it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
import tvm_ffi
from tvm import tirx

from mlcbuild.compiler.kernels.building import Expression
from mlcbuild.compiler.kernels.computed_matrix import is_reinterpret


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A float whose low bits hold an integer below `one`, if its bits are those of `one`."""

    bits: str  # the type of its bits
    one: int
    ones_bits: int


_KINDS = {
    "float16": _Kind(bits="uint16", one=1 << 10, ones_bits=0x6400),
    "float32": _Kind(bits="uint32", one=1 << 23, ones_bits=0x4B000000),
}


def quick(expression: Expression) -> Expression:
    """The expression with integers of up to ten bits converted so."""
    return tvm_ffi.structural_map(expression, [(tirx.Cast, _converted), (tirx.Sub, _together)])


def _converted(cast: tirx.Cast) -> Expression:
    kind, value = _KINDS.get(str(cast.ty.dtype)), cast.value
    if kind is None:
        return cast
    if _is_small(value):
        return _from_bits(value, str(cast.ty.dtype), kind, 0)
    if _is_signed_byte(value):
        # With its sign turned, a byte counts from -128 on.
        return _from_bits(value.args[0] ^ T.uint8(0x80), str(cast.ty.dtype), kind, 128)
    return cast


def _from_bits(value: Expression, dtype: str, kind: _Kind, less: int) -> Expression:
    bits = value.astype(kind.bits) | tirx.const(kind.ones_bits, kind.bits)
    return T.reinterpret(dtype, bits) - tirx.const(float(kind.one + less), dtype)


def _together(difference: tirx.Sub) -> Expression:
    """One subtraction for two, where the first undoes a conversion's one."""
    first, second = difference.a, difference.b
    dtype = str(difference.ty.dtype)
    if not isinstance(first, tirx.Sub) or not isinstance(second, tirx.FloatImm) or not is_reinterpret(first.a):
        return difference
    whole = float(first.b) + float(second)
    if dtype not in _KINDS or not isinstance(first.b, tirx.FloatImm) or not 0 <= whole <= 2 * _KINDS[dtype].one:
        return difference
    return first.a - tirx.const(whole, dtype) if whole == int(whole) else difference


def _is_small(value: Expression) -> bool:
    if isinstance(value, tirx.Cast) and str(value.ty.dtype).startswith(("int", "uint")):
        return _is_small(value.value)
    if isinstance(value, tirx.BitwiseAnd):
        return isinstance(value.b, tirx.IntImm) and 0 <= int(value.b) < _KINDS["float16"].one
    return str(value.ty.dtype) == "uint8" and isinstance(value, tvm.ir.TensorLoad)


def _is_signed_byte(value: Expression) -> bool:
    return str(value.ty.dtype) == "int8" and is_reinterpret(value) and str(value.args[0].ty.dtype) == "uint8"
