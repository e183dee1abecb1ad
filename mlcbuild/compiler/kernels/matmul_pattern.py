"""What a matrix product with a constant matrix looks like, once everything that can be inlined is.

    C[.., row, .., n] += x[.., row, .., k] * W[n, k]        for at most one axis `row` that is longer than one

where W is a stored matrix (n, k), or is restored from packed integers:
    W[n, k] = (((words[n, k // per_word] >> (k % per_word * bits)) & (2**bits - 1)) - offset) * scales[n, k // group]
or of words and scales that have their two axes exchanged; or is computed of stored bits in another way
(`computed_matrix`). Products of other matrices have the same form: of signed bytes, whose sums are integers, and of
integers with zero points (`zero_point_matrix`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from mlcbuild.compiler.kernels.blocks import inline_all, plain_blocks
from mlcbuild.compiler.kernels.building import FLOATS
from mlcbuild.compiler.kernels.computed_matrix import ComputedMatrix, match_computed_matrix

Expression = Any  # TVM's expressions carry no types that a checker can read.


@dataclass(frozen=True, kw_only=True)
class PackedMatrix:
    """Unsigned integers of `bits` in 32-bit words, the first in the lowest bits; one scale a group along k, or a
    row."""

    words: tirx.Var
    scales: tirx.Var
    bits: int
    per_word: int
    group: int
    offset: float
    by_columns: bool = False  # words and scales are read at [k // …, n]


AnyMatrix = Any
"""A stored matrix (a variable), a `PackedMatrix`, a `ComputedMatrix`, or what another `FindMatrix` answers."""


@dataclass(frozen=True, kw_only=True)
class Epilogue:
    """An element-wise block that reads the product, and what its axes are: the row, the column n, or one place.

    A `gated` one reads two elements for each of its own: at n, and half of all columns further.
    """

    block: s_tir.SBlock
    axes: tuple[str, ...]
    gated: bool = False

    def at(self, row: Expression, n: Expression) -> tirx.Stmt:
        """The block, for one element of the product."""
        places = {"row": row, "n": n}
        values = [
            places.get(axis, tirx.const(0, iteration.var.ty.dtype))
            for axis, iteration in zip(self.axes, self.block.iter_vars, strict=True)
        ]
        return s_tir.SBlockRealize(values, True, self.block)


@dataclass(frozen=True, kw_only=True)
class MatrixProduct:
    """The product found in a kernel, and what happens to it there. `func` is the kernel, inlined."""

    func: tirx.PrimFunc
    x: tirx.Var
    x_indices: tuple[Expression | None, ...]  # None: the row; the last axis, k, is left out
    matrix: AnyMatrix
    output: tirx.Var
    output_indices: tuple[Expression | None, ...]  # None: the row; the last axis, n, is left out
    rows: int | Expression
    n: int
    k: int
    epilogue: Epilogue | None

    def x_at(self, row: Expression, k: Expression) -> Expression:
        """x at a row and a place along k, which may be a vector of places, as stored."""
        return self.x[(*(row if index is None else index for index in self.x_indices), k)]

    def output_at(self, row: Expression, n: Expression) -> list[Expression]:
        """The indices of the product at a row and column."""
        return [*(row if index is None else index for index in self.output_indices), n]


FindMatrix = Callable[..., AnyMatrix | None]
"""Answers the matrix that an expression reads at [n, k], given as keywords."""


def match_matrix_product(func: tirx.PrimFunc, *, gated: bool = False) -> MatrixProduct | None:
    """The product in `func`, if it holds one, with at most one element-wise block after it, which may be `gated`."""
    return match_product(func, _float_matrix, gated=gated)


def match_byte_product(func: tirx.PrimFunc) -> MatrixProduct | None:
    """The product of signed bytes in `func`, summed in int32, if it holds one, with at most one element-wise block
    after it."""
    product = match_product(func, _byte_matrix)
    if product is None or str(product.x.dtype) != "int8" or str(product.output.dtype) != "int32":
        return None
    return product


def match_product(func: tirx.PrimFunc, find: FindMatrix, *, gated: bool = False) -> MatrixProduct | None:
    """The product in `func` with a matrix that is found so, with at most one element-wise block after it, which may be
    `gated`."""
    inlined = inline_all(func)
    blocks = None if inlined is None else plain_blocks(inlined)
    if inlined is None or blocks is None:
        return None
    if not 1 <= len(blocks) <= 2:
        return None
    product = _match_block(inlined, blocks[0], find)
    if product is None or len(blocks) == 1:
        return product
    epilogue = _match_epilogue(product, blocks[1])
    if epilogue is None and gated:
        epilogue = _match_gated_epilogue(product, blocks[1])
    return None if epilogue is None else dataclasses.replace(product, epilogue=epilogue)


def _match_epilogue(product: MatrixProduct, block: s_tir.SBlock) -> Epilogue | None:
    """The block's axes, where it reads the product at one place that its axes are the coordinates of."""
    if not _is_elementwise(block):
        return None
    regions = [read.region for read in block.reads if read.source.same_as(product.output)]
    if len(regions) != 1 or not all(_is_one(place.extent) for place in regions[0]):
        return None
    axes = _axes_of(product, block, [place.min for place in regions[0]])
    return None if axes is None else Epilogue(block=block, axes=axes)


def _match_gated_epilogue(product: MatrixProduct, block: s_tir.SBlock) -> Epilogue | None:
    """The block's axes, where it stores one element, and reads the product at the place that its axes are the
    coordinates of, and half of all columns further."""
    if not _is_elementwise(block) or not isinstance(block.body, tirx.BufferStore):
        return None
    half, places = product.n // 2, [load.indices for load in _loads_of(block.body.value, product.output)]
    first = next((list(place) for place in places if isinstance(place[-1], tirx.Var)), None)
    if first is None or not all(_is_at(place, first, half) for place in places):
        return None
    axes = _axes_of(product, block, first)
    columns = [axis.dom.extent for axis, name in zip(block.iter_vars, axes or (), strict=False) if name == "n"]
    if axes is None or product.n % 2 or not (isinstance(columns[0], tirx.IntImm) and int(columns[0]) == half):
        return None
    return Epilogue(block=block, axes=axes, gated=True)


def _is_elementwise(block: s_tir.SBlock) -> bool:
    return block.init is None and all(axis.iter_type == tirx.IterVar.DataPar for axis in block.iter_vars)


def _is_at(place: Sequence[Expression], first: Sequence[Expression], half: int) -> bool:
    """Whether a place is the first, or `half` further."""
    same = all(tvm_ffi.structural_equal(one, other) for one, other in zip(place[:-1], first[:-1], strict=True))
    last = place[-1]
    return same and (last.same_as(first[-1]) or constant_operand(last, tirx.Add, first[-1]) == half)


def _loads_of(expression: Expression, buffer: tirx.Var) -> list[tvm.ir.TensorLoad]:
    """What an expression reads of a buffer."""
    loads: list[tvm.ir.TensorLoad] = []

    def look(load: tvm.ir.TensorLoad) -> tvm.ir.TensorLoad:
        if load.source.same_as(buffer):
            loads.append(load)
        return load

    tvm_ffi.structural_map(expression, (tvm.ir.TensorLoad, look))
    return loads


def _axes_of(product: MatrixProduct, block: s_tir.SBlock, place: Sequence[Expression]) -> tuple[str, ...] | None:
    """What the axes of a block are that reads the product at a place of which they are the coordinates."""
    names = ["row" if index is None else "" for index in product.output_indices] + ["n"]
    axes: list[str] = []
    for axis in block.iter_vars:
        at = [name for name, index in zip(names, place, strict=True) if name and index.same_as(axis.var)]
        if len(at) > 1 or (not at and not _is_one(axis.dom.extent)):
            return None
        axes.append(at[0] if at else "")
    expected = sorted(name for name in names if name)
    return tuple(axes) if sorted(filter(None, axes)) == expected else None


def _match_block(func: tirx.PrimFunc, block: s_tir.SBlock, find: FindMatrix) -> MatrixProduct | None:
    store = block.body
    axes = list(block.iter_vars)
    if block.init is None or not isinstance(store, tirx.BufferStore) or len(axes) < 2:
        return None
    kinds = [axis.iter_type for axis in axes]
    if kinds != [tirx.IterVar.DataPar] * (len(axes) - 1) + [tirx.IterVar.CommReduce]:
        return None
    *outer, n_axis, k_axis = axes
    if not all(isinstance(axis.dom.extent, tirx.IntImm) for axis in (n_axis, k_axis)):
        return None
    long = [axis for axis in outer if not _is_one(axis.dom.extent)]
    if len(long) > 1 or not is_sum_into(store):
        return None
    row = long[0].var if long else None
    product = without_casts(store.value.b)
    if not isinstance(product, tirx.Mul):
        return None
    k, n = k_axis.var, n_axis.var
    for left, right in ((product.a, product.b), (product.b, product.a)):
        x = without_casts(left)
        restored = without_casts(right)
        matrix = find(restored, n=n, k=k)
        if isinstance(matrix, ComputedMatrix) and any(matrix.uses(axis.var) for axis in outer):
            continue  # Each row has a matrix of its own.
        if matrix is None or not isinstance(x, tvm.ir.TensorLoad) or not x.indices[-1].same_as(k):
            continue
        spatial = [axis.var for axis in outer]
        x_indices = _outer_indices(list(x.indices)[:-1], row=row, spatial=spatial)
        output_indices = _outer_indices(list(store.indices)[:-1], row=row, spatial=spatial)
        if x_indices is None or output_indices is None or not store.indices[-1].same_as(n):
            continue
        extent = long[0].dom.extent if long else 1
        return MatrixProduct(
            func=func,
            x=x.source,
            x_indices=x_indices,
            matrix=matrix,
            output=store.buffer,
            output_indices=output_indices,
            rows=int(extent) if isinstance(extent, tirx.IntImm | int) else extent,
            n=int(n_axis.dom.extent),
            k=int(k_axis.dom.extent),
            epilogue=None,
        )
    return None


def _float_matrix(expression: Expression, *, n: tirx.Var, k: tirx.Var) -> AnyMatrix | None:
    found = match_matrix(expression, n=n, k=k)
    return match_computed_matrix(expression, n=n, k=k) if found is None else found


def _byte_matrix(expression: Expression, *, n: tirx.Var, k: tirx.Var) -> AnyMatrix | None:
    if not isinstance(expression, tvm.ir.TensorLoad) or str(expression.source.dtype) != "int8":
        return None
    indices = list(expression.indices)
    fits = len(indices) == 2 and indices[0].same_as(n) and indices[1].same_as(k)
    return expression.source if fits else None


def _is_one(extent: Expression) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1


def is_sum_into(store: tirx.BufferStore) -> bool:
    """Whether something is added to the element that is stored."""
    value = store.value
    return (
        isinstance(value, tirx.Add) and isinstance(value.a, tvm.ir.TensorLoad) and value.a.source.same_as(store.buffer)
    )


def _outer_indices(
    indices: list[Expression], *, row: tirx.Var | None, spatial: list[tirx.Var]
) -> tuple[Expression | None, ...] | None:
    """Each index as None where it is the row, as zero where its axis has one place."""
    result: list[Expression | None] = []
    for index in indices:
        if row is not None and index.same_as(row):
            result.append(None)
        elif isinstance(index, tirx.IntImm):
            result.append(index)
        elif any(index.same_as(variable) for variable in spatial):
            result.append(tirx.const(0, index.ty.dtype))
        else:
            return None
    return tuple(result)


def without_casts(expression: Expression) -> Expression:
    """What an expression is converted from."""
    while isinstance(expression, tirx.Cast):
        expression = expression.value
    return expression


def match_matrix(
    expression: Expression, *, n: tirx.Var, k: tirx.Var, expert: Expression | None = None
) -> tirx.Var | PackedMatrix | None:
    """The matrix that `expression` reads at [n, k]; of several, one an `expert`, at [expert, n, k]."""
    if isinstance(expression, tvm.ir.TensorLoad):
        fits = _is_in_row(expression, n, expert) and expression.indices[-1].same_as(k)
        return expression.source if fits and _is_float(expression.source) else None
    if not isinstance(expression, tirx.Mul):
        return None
    integers, scale = without_casts(expression.a), without_casts(expression.b)
    by_columns = expert is None and _is_by_columns(scale, n)
    group = _divided_index(scale, n=n, k=k, expert=expert, by_columns=by_columns)
    if not isinstance(integers, tirx.Sub) or not isinstance(integers.b, tirx.FloatImm):
        return None
    masked = without_casts(integers.a)
    if not isinstance(masked, tirx.BitwiseAnd) or not isinstance(masked.b, tirx.IntImm):
        return None
    shifted = masked.a
    if not isinstance(shifted, tirx.RShift):
        return None
    per_word = _divided_index(shifted.a, n=n, k=k, expert=expert, by_columns=by_columns)
    bits = _shift_bits(without_casts(shifted.b), k=k, per_word=per_word)
    if per_word is None or bits is None or int(masked.b) != (1 << bits) - 1:
        return None
    if group is None and _is_first_of_row(scale, n, expert):
        group = per_word * int(shifted.a.source.shape[-1])
    if group is None:
        return None
    if str(shifted.a.source.dtype) != "uint32" or not _is_float(scale.source):
        return None
    return PackedMatrix(
        words=shifted.a.source,
        scales=scale.source,
        bits=bits,
        per_word=per_word,
        group=group,
        offset=float(integers.b.value),
        by_columns=by_columns,
    )


def _is_float(buffer: tirx.Var) -> bool:
    return str(buffer.dtype) in FLOATS


def _is_by_columns(load: Expression, n: tirx.Var) -> bool:
    return isinstance(load, tvm.ir.TensorLoad) and len(load.indices) == 2 and load.indices[1].same_as(n)


def _divided_index(
    load: Expression, *, n: tirx.Var, k: tirx.Var, expert: Expression | None, by_columns: bool
) -> int | None:
    """d where `load` reads [n, k // d], or [expert, n, k // d]; [k // d, n] where it is `by_columns`."""
    if by_columns:
        return constant_operand(load.indices[0], tirx.FloorDiv, k) if _is_by_columns(load, n) else None
    if not isinstance(load, tvm.ir.TensorLoad) or not _is_in_row(load, n, expert):
        return None
    return constant_operand(load.indices[-1], tirx.FloorDiv, k)


def _is_in_row(load: Expression, n: tirx.Var, expert: Expression | None) -> bool:
    *outer, row, _ = load.indices if len(load.indices) > 1 else (None, None)
    if not isinstance(row, tirx.Var) or not row.same_as(n) or len(outer) != (expert is not None):
        return False
    return expert is None or bool(tvm_ffi.structural_equal(outer[0], expert))


def _is_first_of_row(load: Expression, n: tirx.Var, expert: Expression | None) -> bool:
    """Whether `load` reads [n, 0], or [expert, n, 0]: the one group that a row has."""
    is_load = isinstance(load, tvm.ir.TensorLoad) and isinstance(load.indices[-1], tirx.IntImm)
    return is_load and int(load.indices[-1]) == 0 and _is_in_row(load, n, expert)


def constant_operand(expression: Expression, kind: Any, variable: tirx.Var) -> int | None:
    """The constant that an operation of this kind has the variable combined with; None for any other expression."""
    fits = isinstance(expression, kind) and expression.a.same_as(variable)
    return int(expression.b) if fits and isinstance(expression.b, tirx.IntImm) else None


def _shift_bits(expression: Expression, *, k: tirx.Var, per_word: int | None) -> int | None:
    """b where `expression` is k % per_word * b."""
    if not isinstance(expression, tirx.Mul) or not isinstance(expression.b, tirx.IntImm):
        return None
    place = without_casts(expression.a)
    return int(expression.b) if per_word and constant_operand(place, tirx.FloorMod, k) == per_word else None
