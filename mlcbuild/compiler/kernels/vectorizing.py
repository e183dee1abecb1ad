"""A scalar expression of a block, evaluated at several neighbouring places of one axis at once.

LLVM makes a call a lane of exponentials and the like; here they are computed in vectors. What does not depend on the
axis is computed once, before the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.kernels.building import Expression, exp, lanes, splat

_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max)
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


class VectorizedExpression:
    """`expression` at `count` places along `axis`, a variable whose extent is `extent`."""

    def __init__(self, expression: Expression, *, axis: tirx.Var, extent: int, count: int) -> None:
        self._expression = expression
        self._axis = axis
        self._extent = extent
        self._count = count
        self._fixed: list[tuple[Expression, Expression]] = []

    def supported(self) -> bool:
        """Whether `prepare` and `at` know every part of the expression."""
        return self._knows(self._expression)

    def prepare(self) -> None:
        """Computes what is the same at all places. To be called where the axes other than `axis` are bound."""
        self._fixed = []
        self._fix(self._expression)

    def at(self, start: Expression) -> Expression:
        """The vector of values at start, start + 1, …"""
        return self._vector(self._expression, start)

    def calls_functions(self) -> bool:
        """Whether exponentials and the like have to be computed at each place."""
        return self._calls(self._expression)

    def _calls(self, expression: Expression) -> bool:
        called = isinstance(expression, tvm.ir.Call) and _name(expression) in _FUNCTIONS and self.depends(expression)
        return called or any(self._calls(part) for part in _parts(expression))

    def depends(self, expression: Expression) -> bool:
        """Whether a part of the expression differs from place to place."""
        if isinstance(expression, tirx.Var):
            return bool(expression.same_as(self._axis))
        return any(self.depends(part) for part in _parts(expression))

    def _knows(self, expression: Expression) -> bool:
        if not self.depends(expression):
            return True
        if isinstance(expression, tvm.ir.TensorLoad):
            *outer, last = expression.indices
            return not any(self.depends(index) for index in outer) and self._offset(last) is not None
        if isinstance(expression, tvm.ir.Call) and _name(expression) == "prim.if_then_else":
            condition, *branches = expression.args
            guarded = self.depends(condition)
            return all(self._knows(part) for part in expression.args) and not (
                guarded and any(self._may_miss(branch) for branch in branches)
            )
        known = isinstance(expression, (tirx.Var, tirx.Cast, tirx.Select, *_ARITHMETIC, *_COMPARISONS)) or (
            isinstance(expression, tvm.ir.Call) and _name(expression) in _FUNCTIONS
        )
        return known and all(self._knows(part) for part in _parts(expression))

    def _may_miss(self, expression: Expression) -> bool:
        """Whether a buffer is read at places that it may not have: then a condition may be its guard."""
        if isinstance(expression, tvm.ir.TensorLoad) and self.depends(expression):
            size = expression.source.shape[-1]
            whole = isinstance(size, tirx.IntImm) and int(size) == self._extent
            return not (whole and expression.indices[-1].same_as(self._axis))
        return any(self._may_miss(part) for part in _parts(expression))

    def _offset(self, index: Expression) -> Expression | None:
        """o where `index` is axis + o."""
        if index.same_as(self._axis):
            return tirx.const(0, index.ty.dtype)
        if isinstance(index, tirx.Add) and index.a.same_as(self._axis) and not self.depends(index.b):
            return index.b
        return None

    def _fix(self, expression: Expression) -> None:
        if not self.depends(expression):
            if not isinstance(expression, (tirx.IntImm, tirx.FloatImm)):
                self._fixed.append((expression, T.bind(expression)))
        elif isinstance(expression, tvm.ir.Call) and _name(expression) == "prim.if_then_else":
            # What stands in a branch is not computed unless the branch is taken.
            self._fix(expression.args[0])
        elif not isinstance(expression, tvm.ir.TensorLoad):
            for part in _parts(expression):
                self._fix(part)

    def _vector(self, expression: Expression, start: Expression) -> Expression:
        count = self._count
        if not self.depends(expression):
            known = [bound for original, bound in self._fixed if original.same_as(expression)]
            return splat(known[0] if known else expression, count)
        if isinstance(expression, tirx.Var):
            return lanes(T.Cast(str(expression.ty.dtype), start), count)
        if isinstance(expression, tvm.ir.TensorLoad):
            *outer, last = expression.indices
            return expression.source[(*outer, lanes(start + self._offset(last), count))]
        if isinstance(expression, tirx.Cast):
            return T.Cast(f"{expression.ty.dtype}x{count}", self._vector(expression.value, start))
        if isinstance(expression, tirx.Select):
            parts = (expression.condition, expression.true_value, expression.false_value)
            return tirx.Select(*(self._vector(part, start) for part in parts))
        if isinstance(expression, (*_ARITHMETIC, *_COMPARISONS)):
            return type(expression)(self._vector(expression.a, start), self._vector(expression.b, start))
        return self._call(expression, start)

    def _call(self, call: Expression, start: Expression) -> Expression:
        if _name(call) != "prim.if_then_else":
            value = self._vector(call.args[0], start)
            return _in_float32(_FUNCTIONS[_name(call)], value, str(call.ty.dtype), self._count)
        condition, *branches = call.args
        values = [self._vector(branch, start) for branch in branches]
        if self.depends(condition):
            return tirx.Select(self._vector(condition, start), *values)
        known = [bound for original, bound in self._fixed if original.same_as(condition)]
        return T.if_then_else(known[0] if known else condition, *values)


def _name(call: Expression) -> str:
    return str(call.op.name) if isinstance(call.op, tvm.ir.Op) else ""


def _parts(expression: Expression) -> list[Expression]:
    """The operands of an expression, of the kinds that blocks hold."""
    if isinstance(expression, tvm.ir.TensorLoad):
        return list(expression.indices)
    if isinstance(expression, tvm.ir.Call):
        return list(expression.args)
    if isinstance(expression, tirx.Select):
        return [expression.condition, expression.true_value, expression.false_value]
    if isinstance(expression, tirx.Let):
        return [expression.var, expression.value, expression.body]
    names = ("value",) if isinstance(expression, tirx.Cast) else ("a", "b")
    return [getattr(expression, name) for name in names if hasattr(expression, name)]


def _in_float32(function: Callable[[Expression, int], Any], value: Expression, dtype: str, count: int) -> Expression:
    """The function of a vector; narrow floats are widened for it."""
    if dtype == "float32":
        return function(value, count)
    return T.Cast(f"{dtype}x{count}", function(T.Cast(f"float32x{count}", value), count))


def _sigmoid(x: Expression, count: int) -> Expression:
    one = splat(T.float32(1), count)
    return one / (one + exp(splat(T.float32(0), count) - x, count))


def _rsqrt(x: Expression, count: int) -> Expression:
    return splat(T.float32(1), count) / tirx.sqrt(x)


_FUNCTIONS: dict[str, Callable[[Expression, int], Any]] = {
    "tirx.exp": exp,
    "tirx.sigmoid": _sigmoid,
    "tirx.sqrt": lambda x, _: tirx.sqrt(x),
    "tirx.rsqrt": _rsqrt,
    "tirx.fabs": lambda x, _: tirx.abs(x),
}
