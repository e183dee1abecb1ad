"""A matrix of integers of 4 bits with zero points, in AWQ's layout: its words lie along the rows n.

    W[n, k] = (nibble(words[k, n // 8]) - nibble(zeros[k // group, n // 8])) * scales[k // group, n]

Which nibble of a word is row n's follows from n % 8, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx

from mlcbuild.compiler.kernels.blocks import is_constant
from mlcbuild.compiler.kernels.building import FLOATS
from mlcbuild.compiler.kernels.matmul_pattern import constant_operand, without_casts

Expression = Any  # TVM's expressions carry no types that a checker can read.

BITS, NIBBLES = 4, 8


@dataclass(frozen=True, kw_only=True)
class ZeroPointMatrix:
    """`rows` has for each nibble of a word, from the low end, which of the word's eight rows it is of."""

    words: tirx.Var
    zeros: tirx.Var
    scales: tirx.Var
    group: int
    rows: tuple[int, ...]


def match_zero_point_matrix(expression: Expression, *, n: tirx.Var, k: tirx.Var) -> ZeroPointMatrix | None:
    """The matrix whose element at [n, k] an expression is; None for any other."""
    if not isinstance(expression, tirx.Mul):
        return None
    difference, scale = without_casts(expression.a), without_casts(expression.b)
    if not isinstance(difference, tirx.Sub) or not isinstance(scale, tvm.ir.TensorLoad):
        return None
    integer, zero = (_nibble(part, n) for part in (difference.a, difference.b))
    if integer is None or zero is None or integer.rows != zero.rows or len(scale.indices) != 2:
        return None
    group = constant_operand(scale.indices[0], tirx.FloorDiv, k)
    fits = (
        integer.outer.same_as(k)
        and group is not None
        and constant_operand(zero.outer, tirx.FloorDiv, k) == group
        and scale.indices[1].same_as(n)
        and str(scale.source.dtype) in FLOATS
    )
    if not fits or group is None:
        return None
    return ZeroPointMatrix(words=integer.words, zeros=zero.words, scales=scale.source, group=group, rows=integer.rows)


@dataclass(frozen=True, kw_only=True)
class _Nibble:
    words: tirx.Var
    outer: Expression  # the first index of the word
    rows: tuple[int, ...]


def _nibble(expression: Expression, n: tirx.Var) -> _Nibble | None:
    masked = without_casts(expression)
    if not isinstance(masked, tirx.BitwiseAnd) or not is_constant(masked.b, (1 << BITS) - 1):
        return None
    shifted = masked.a
    if not isinstance(shifted, tirx.RShift) or not isinstance(shifted.a, tvm.ir.TensorLoad):
        return None
    load = shifted.a
    if (
        len(load.indices) != 2
        or str(load.source.dtype) != "uint32"
        or constant_operand(load.indices[1], tirx.FloorDiv, n) != NIBBLES
    ):
        return None
    shifts = [_value(shifted.b, n, row) for row in range(NIBBLES)]
    if sorted(shift for shift in shifts if shift is not None) != [BITS * place for place in range(NIBBLES)]:
        return None
    # The same for every word: the shift is a function of n % 8.
    if any(_value(shifted.b, n, row + NIBBLES) != shifts[row] for row in range(NIBBLES)):
        return None
    rows = tuple(shifts.index(BITS * place) for place in range(NIBBLES))
    return _Nibble(words=load.source, outer=load.indices[0], rows=rows)


def _value(expression: Expression, variable: tirx.Var, value: int) -> int | None:
    """What an expression of one variable is at a value of it."""

    def replaced(one: tirx.Var) -> Expression:
        return tirx.const(value, one.ty.dtype) if one.same_as(variable) else one

    found = sym.Analyzer().simplify(tvm_ffi.structural_map(expression, (tirx.Var, replaced)))
    return int(found) if isinstance(found, tirx.IntImm) else None
