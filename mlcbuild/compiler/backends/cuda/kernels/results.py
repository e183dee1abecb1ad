"""What becomes of the elements of a product: each is stored, or goes through the element-wise block that follows.

A gated block makes one element of two, which are half of all rows of the matrix apart. So that a thread has both, a
tile's rows come in eights: eight of the first half, then the eight that belong to them. `matrix_row` says which row of
the matrix has a place in the tiles, `Results` which places a result is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
import tvm_ffi
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.kernels.building import Expression, lanes, store
from mlcbuild.compiler.kernels.matmul_pattern import Epilogue, MatrixProduct

EIGHT = 8


def is_gated(product: MatrixProduct) -> bool:
    return product.epilogue is not None and product.epilogue.gated


def matrix_row(product: MatrixProduct, place: Expression) -> Expression:
    """The row of the matrix that is at a place of the tiles, which have all rows."""
    if not is_gated(product):
        return place
    eight = tirx.floordiv(place, EIGHT)
    half = tirx.floormod(eight, 2) * (product.n // 2)
    return tirx.floordiv(eight, 2) * EIGHT + tirx.floormod(place, EIGHT) + half


def count(product: MatrixProduct, rows: int) -> int:
    """The results of `rows` places, a multiple of 16."""
    return rows // 2 if is_gated(product) else rows


def place_of(product: MatrixProduct, number: Expression) -> Expression:
    """The place of a result's element, or of its first: the second is eight further."""
    if not is_gated(product):
        return number
    return tirx.floordiv(number, EIGHT) * (2 * EIGHT) + tirx.floormod(number, EIGHT)


def store_result(
    product: MatrixProduct,
    total: Callable[[Expression], Expression],
    *,
    row: Expression,
    first: Expression,
    number: Expression,
) -> None:
    """Stores result `number` of a vector for a block whose tiles begin at the place `first`; `total` gives the sum at a
    place of the block, in float32."""
    place = place_of(product, number)
    if is_gated(product):
        gate, up = T.bind(total(place)), T.bind(total(place + EIGHT))
        begin = tirx.floordiv(first, 2)
        _add(_of_sums(product, gate, up), product, row, begin + number)
        return
    value = total(place)
    if product.epilogue is None:
        store(product.output, T.Cast(str(product.output.dtype), value), *product.output_at(row, first + number))
    else:
        _add(_of_sums(product, value), product, row, first + number)


def store_neighbours(
    product: MatrixProduct, sums: list[Any], width: int, *, row: Expression, first: Expression, number: Expression
) -> None:
    """Stores `width` neighbouring results from `number` on; `sums` holds their elements: a buffer, or two."""
    if not is_gated(product):
        with T.vectorized(0, width) as next_one:
            store_result(product, lambda _: sums[0][next_one], row=row, first=first, number=number + next_one)
        return
    epilogue = product.epilogue
    assert epilogue is not None
    written = epilogue.block.body
    made = T.alloc_buffer((width,), str(written.buffer.dtype), scope="local")
    begin = tirx.floordiv(first, 2) + number
    with gpu.unrolled(width) as next_one:
        stored = _at(_of_sums(product, sums[0][next_one], sums[1][next_one]), epilogue, row, begin + next_one)
        store(made, stored.value, next_one)
    target = _at(written, epilogue, row, begin)
    store(written.buffer, made[lanes(0, width)], *target.indices[:-1], lanes(target.indices[-1], width))


def _of_sums(product: MatrixProduct, *sums: Expression) -> tirx.Stmt:
    """The element-wise block's statement, of sums in place of the product's elements."""
    assert product.epilogue is not None
    values = [T.Cast(str(product.output.dtype), value) for value in sums]

    def load(element: tvm.ir.TensorLoad) -> Expression:
        if not element.source.same_as(product.output):
            return element
        return values[0] if len(values) == 1 or isinstance(element.indices[-1], tirx.Var) else values[1]

    return tvm_ffi.structural_map(product.epilogue.block.body, [(tvm.ir.TensorLoad, load)])


def _at(statement: tirx.Stmt, epilogue: Epilogue, row: Expression, n: Expression) -> Any:
    """The statement for one element."""
    realized = epilogue.at(row, n)
    places = {axis.var: place for axis, place in zip(realized.block.iter_vars, realized.iter_values, strict=True)}
    return tvm_ffi.structural_map(statement, [(tirx.Var, lambda variable: places.get(variable, variable))])


def _add(statement: tirx.Stmt, product: MatrixProduct, row: Expression, n: Expression) -> None:
    assert product.epilogue is not None
    T.add_to_parent(_at(statement, product.epilogue, row, n))
