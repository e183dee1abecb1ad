"""A matrix whose elements a kernel computes of stored ones, such as floats of 8 bits with scales, or blocks of GGUF:
eight at a time.

What is known are casts, arithmetic, bits, choices that are the same for eight neighbours, and buffers that are read at
places which, for eight neighbouring k beginning at a multiple of eight, are one place or neighbours (`_stride`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
import tvm_ffi
from tvm import tirx

from mlcbuild.compiler.kernels.building import FLOATS, LANES, Buffer, Expression, float32, lanes, splat

_REINTERPRET = "tirx.reinterpret"
_BINARY = (
    *(tirx.Add, tirx.Sub, tirx.Mul, tirx.Max, tirx.Min),
    *(tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.LShift, tirx.RShift),
)
_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)


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

    def uses(self, variable: tirx.Var) -> bool:
        """Whether an element depends on a variable beside its place, such as the row whose expert it is of."""
        return _uses(self.expression, variable)

    def of_expert(self, chosen: Buffer, expert: Expression) -> ComputedMatrix:
        """One expert's matrix, of one whose expert is read of the buffer `chosen`."""

        def exchange(load: Expression) -> Expression:
            return expert.astype(load.ty.dtype) if load.source.same_as(chosen) else load

        expression = tvm_ffi.structural_map(self.expression, [(tvm.ir.TensorLoad, exchange)])
        return ComputedMatrix(expression=expression, n=self.n, k=self.k)

    def at(self, n: Expression, first: Expression) -> Expression:
        """The eight elements of row n from `first` on, a multiple of eight, in float32."""
        return self._vector(self.expression, n, first)

    def _vector(self, expression: Expression, n: Expression, first: Expression) -> Expression:
        if _is_uniform(expression, self.k):
            return splat(self._placed(expression, n, first), LANES)
        if isinstance(expression, tvm.ir.TensorLoad):
            *outer, last = (self._placed(index, n, first) for index in expression.indices)
            return expression.source[(*outer, lanes(last, LANES))]
        if _stride(expression, self.k) == 1:
            return T.Ramp(self._placed(expression, n, first), tirx.const(1, str(expression.ty.dtype)), LANES)
        if isinstance(expression, tirx.Cast):
            return T.Cast(f"{expression.ty.dtype}x{LANES}", self._vector(expression.value, n, first))
        if isinstance(expression, tvm.ir.Call):
            (value,) = expression.args
            return T.reinterpret(f"{expression.ty.dtype}x{LANES}", self._vector(value, n, first))
        if isinstance(expression, tirx.Select):
            # What chooses is the same for all eight.
            parts = (self._vector(part, n, first) for part in (expression.true_value, expression.false_value))
            return tirx.Select(self._placed(expression.condition, n, first), *parts)
        return type(expression)(self._vector(expression.a, n, first), self._vector(expression.b, n, first))

    def _placed(self, expression: Expression, n: Expression, first: Expression) -> Expression:
        return exchanged(expression, {self.n: n, self.k: first})


def match_computed_matrix(expression: Expression, *, n: tirx.Var, k: tirx.Var) -> ComputedMatrix | None:
    """The matrix whose element at [n, k] an expression of stored bits or integers is, a float; None for what is not
    known. The expression may use other variables (`ComputedMatrix.uses`)."""
    if str(expression.ty.dtype) not in FLOATS or not _reads_integers(expression) or not _is_known(expression, k):
        return None
    return ComputedMatrix(expression=float32(expression, 1), n=n, k=k)


def match_any_computed_matrix(expression: Expression, *, n: tirx.Var, k: tirx.Var) -> ComputedMatrix | None:
    """As `match_computed_matrix`, in whatever way elements are computed: for who computes them one by one."""
    if str(expression.ty.dtype) not in FLOATS or not _reads_integers(expression):
        return None
    return ComputedMatrix(expression=float32(expression, 1), n=n, k=k)


def _reads_integers(expression: Expression) -> bool:
    """Whether an element is computed of integers, and not only read at a place that is."""
    if isinstance(expression, tvm.ir.TensorLoad):
        return str(expression.source.dtype).startswith(("int", "uint"))
    return isinstance(expression, tvm.ir.Call) or any(map(_reads_integers, _parts(expression)))


def _is_known(expression: Expression, k: tirx.Var) -> bool:
    if isinstance(expression, tvm.ir.TensorLoad):
        *outer, last = (_stride(index, k) for index in expression.indices)
        return not any(outer) and None not in outer and last is not None
    if isinstance(expression, (tirx.IntImm, tirx.FloatImm)):
        return True
    if str(expression.ty.dtype) in ("int32", "int64") and _stride(expression, k) is not None:
        return True
    if isinstance(expression, tvm.ir.Call):
        return is_reinterpret(expression) and _is_known(expression.args[0], k)
    if isinstance(expression, tirx.Cast):
        return _is_known(expression.value, k)
    if isinstance(expression, tirx.Select):
        chosen = (expression.true_value, expression.false_value)
        return _is_uniform(expression.condition, k) and all(_is_known(part, k) for part in chosen)
    if isinstance(expression, _BINARY):
        return _is_known(expression.a, k) and _is_known(expression.b, k)
    return False


def is_reinterpret(expression: Expression) -> bool:
    """Whether the bits of one type are taken for those of another."""
    is_call = isinstance(expression, tvm.ir.Call) and len(expression.args) == 1
    return is_call and str(getattr(expression.op, "name", "")) == _REINTERPRET


def _is_uniform(expression: Expression, k: tirx.Var) -> bool:
    """Whether an expression is the same at eight neighbouring places."""
    if isinstance(expression, _DIVISIONS):
        return _stride(expression, k) == 0
    if isinstance(expression, (tirx.LT, tirx.GE)) and _is_multiple(expression.b, k) and _is_multiple(expression.a, k):
        return not _uses(expression.b, k) and _stride(expression.a, k) is not None
    return not expression.same_as(k) and all(_is_uniform(part, k) for part in _parts(expression))


def _stride(index: Expression, k: tirx.Var) -> int | None:
    """By how much an index grows with k, from a multiple of eight on and for eight places: 0 or 1; else None."""
    if index.same_as(k):
        return 1
    if not _uses(index, k):
        return 0
    if isinstance(index, tirx.Cast):
        return _stride(index.value, k)
    if not isinstance(index, (tirx.Add, tirx.Sub, tirx.Mul, *_DIVISIONS)):
        return None
    left, right = _stride(index.a, k), _stride(index.b, k)
    if left is None or right is None:
        return None
    if isinstance(index, tirx.Add):
        return left + right if left + right < 2 else None
    if isinstance(index, tirx.Sub):
        return left if right == 0 else None
    if isinstance(index, tirx.Mul) or left == 0:
        return 0 if left == right == 0 else None
    whole = isinstance(index.b, tirx.IntImm) and int(index.b) % LANES == 0 and _is_multiple(index.a, k)
    return (1 if isinstance(index, tirx.FloorMod) else 0) if whole else None


def _is_multiple(index: Expression, k: tirx.Var) -> bool:
    """Whether an index is a multiple of eight where k is."""
    if isinstance(index, tirx.IntImm):
        return int(index) % LANES == 0
    if isinstance(index, tirx.Cast):
        return _is_multiple(index.value, k)
    if isinstance(index, (tirx.Add, tirx.Sub, tirx.FloorMod)):
        return _is_multiple(index.a, k) and _is_multiple(index.b, k)
    if isinstance(index, tirx.Mul):
        return _is_multiple(index.a, k) or _is_multiple(index.b, k)
    return bool(index.same_as(k))


def _uses(expression: Expression, variable: tirx.Var) -> bool:
    return bool(expression.same_as(variable)) or any(_uses(part, variable) for part in _parts(expression))


def _parts(expression: Expression) -> list[Expression]:
    """The operands of an expression."""
    if isinstance(expression, tvm.ir.TensorLoad):
        return list(expression.indices)
    if isinstance(expression, tvm.ir.Call):
        return list(expression.args)
    if isinstance(expression, tirx.Select):
        return [expression.condition, expression.true_value, expression.false_value]
    names = ("value",) if isinstance(expression, tirx.Cast) else ("a", "b")
    return [getattr(expression, name) for name in names if hasattr(expression, name)]


def exchanged(expression: Expression, values: Mapping[tirx.Var, Expression]) -> Expression:
    """The expression with variables replaced."""

    def exchange(variable: tirx.Var) -> Expression:
        for other, value in values.items():
            if variable.same_as(other):
                return value.astype(variable.ty.dtype)
        return variable

    if isinstance(expression, tirx.Var):
        return exchange(expression)
    return tvm_ffi.structural_map(expression, (tirx.Var, exchange))
