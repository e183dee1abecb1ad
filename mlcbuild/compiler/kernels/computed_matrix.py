"""A matrix whose elements a kernel computes of stored ones, such as floats of 8 bits with scales: eight at a time.

What is known are casts, arithmetic, bits, and buffers that are read at k, or at k divided by a multiple of eight, as
the words and scales of groups are: the same for eight neighbouring places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
import tvm_ffi
from tvm import tirx

from mlcbuild.compiler.kernels.building import LANES, Buffer, Expression, lanes, splat

_REINTERPRET = "tirx.reinterpret"
_BINARY = (
    *(tirx.Add, tirx.Sub, tirx.Mul, tirx.Max, tirx.Min),
    *(tirx.BitwiseAnd, tirx.BitwiseOr, tirx.LShift, tirx.RShift),
)


@dataclass(frozen=True, kw_only=True)
class ComputedMatrix:
    """`expression` is the element at [n, k], in float32."""

    expression: Expression
    n: tirx.Var
    k: tirx.Var

    @property
    def dtype(self) -> str:
        """What is computed is no stored type."""
        return "computed"

    @property
    def buffers(self) -> list[Buffer]:
        """What it is computed of."""
        found: list[Buffer] = []

        def look(load: Expression) -> Expression:
            if not any(load.source.same_as(other) for other in found):
                found.append(load.source)
            return load

        tvm_ffi.structural_map(self.expression, [(tvm.ir.TensorLoad, look)])
        return found

    def at(self, n: Expression, first: Expression) -> Expression:
        """The eight elements of row n from `first` on, a multiple of eight, in float32."""
        return self._vector(self.expression, n, first)

    def _vector(self, expression: Expression, n: Expression, first: Expression) -> Expression:
        if _is_uniform(expression, self.k):
            return splat(_exchanged(_exchanged(expression, self.n, n), self.k, first), LANES)
        if isinstance(expression, tvm.ir.TensorLoad):
            *outer, _ = (_exchanged(index, self.n, n) for index in expression.indices)
            return expression.source[(*outer, lanes(first, LANES))]
        if isinstance(expression, tirx.FloorMod):
            kind = str(expression.ty.dtype)
            return T.Ramp(tirx.const(0, kind), tirx.const(1, kind), LANES)
        if isinstance(expression, tirx.Cast):
            return T.Cast(f"{expression.ty.dtype}x{LANES}", self._vector(expression.value, n, first))
        if isinstance(expression, tvm.ir.Call):
            (value,) = expression.args
            return T.reinterpret(f"{expression.ty.dtype}x{LANES}", self._vector(value, n, first))
        return type(expression)(self._vector(expression.a, n, first), self._vector(expression.b, n, first))


def match_computed_matrix(expression: Expression, *, n: tirx.Var, k: tirx.Var) -> ComputedMatrix | None:
    """The matrix whose element at [n, k] a float32 expression of bits is; None for what is not known."""
    matrix = ComputedMatrix(expression=expression, n=n, k=k)
    reads_bits = any(isinstance(part, tvm.ir.Call) for part in _all_parts(expression))
    fits = str(expression.ty.dtype) == "float32" and reads_bits and _is_known(expression, n, k)
    return matrix if fits else None


def _is_known(expression: Expression, n: tirx.Var, k: tirx.Var) -> bool:
    if isinstance(expression, tvm.ir.TensorLoad):
        *outer, last = expression.indices
        if any(_uses(index, k) for index in outer):
            return False
        return not _uses(last, k) or last.same_as(k) or _divisor(last, tirx.FloorDiv, k) % LANES == 0
    if isinstance(expression, tirx.FloorMod) and _uses(expression, k):
        return _divisor(expression, tirx.FloorMod, k) == LANES
    if isinstance(expression, (tirx.IntImm, tirx.FloatImm)):
        return True
    if isinstance(expression, tvm.ir.Call):
        called = str(getattr(expression.op, "name", ""))
        return called == _REINTERPRET and len(expression.args) == 1 and _is_known(expression.args[0], n, k)
    if isinstance(expression, tirx.Cast):
        return _is_known(expression.value, n, k)
    if isinstance(expression, _BINARY):
        return _is_known(expression.a, n, k) and _is_known(expression.b, n, k)
    return False


def _is_uniform(expression: Expression, k: tirx.Var) -> bool:
    """Whether an expression is the same at eight neighbouring places."""
    if isinstance(expression, tirx.FloorDiv) and _divisor(expression, tirx.FloorDiv, k) % LANES == 0:
        return True
    return not expression.same_as(k) and all(_is_uniform(part, k) for part in _parts(expression))


def _divisor(expression: Expression, kind: Any, k: tirx.Var) -> int:
    """d where `expression` is k // d (or k % d); else 1."""
    fits = isinstance(expression, kind) and expression.a.same_as(k) and isinstance(expression.b, tirx.IntImm)
    return int(expression.b) if fits else 1


def _uses(expression: Expression, variable: tirx.Var) -> bool:
    return any(part.same_as(variable) for part in _all_parts(expression))


def _all_parts(expression: Expression) -> list[Expression]:
    return [expression, *(other for part in _parts(expression) for other in _all_parts(part))]


def _parts(expression: Expression) -> list[Expression]:
    """The operands of an expression."""
    if isinstance(expression, tvm.ir.TensorLoad):
        return list(expression.indices)
    if isinstance(expression, tvm.ir.Call):
        return list(expression.args)
    names = ("value",) if isinstance(expression, tirx.Cast) else ("a", "b")
    return [getattr(expression, name) for name in names if hasattr(expression, name)]


def _exchanged(expression: Expression, variable: tirx.Var, value: Expression) -> Expression:
    """The expression with a variable replaced."""
    if isinstance(expression, tirx.Var):
        return value.astype(expression.ty.dtype) if expression.same_as(variable) else expression
    return tvm_ffi.structural_map(
        expression, (tirx.Var, lambda one: value.astype(one.ty.dtype) if one.same_as(variable) else one)
    )
