"""A packed matrix times several vectors, by panels: neighbouring rows of the matrix lie side by side in registers.

A panel has the float32 of some rows for a run of places along k, one place after another. An element of a vector is
multiplied with all rows of a place, so a register has sums of different rows, nothing is summed across it, and it is
stored as it is. The words of a register's rows are gathered once, and each place of them is had by a shift and a mask.
A run is so short that a panel stays in the second cache. Each run has sums of its own, which are added to those before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx
from tvm.target.codegen import target_has_features

from mlcbuild.compiler.backends.cpu.kernels.gemv import multiply_one
from mlcbuild.compiler.backends.cpu.kernels.matmul import convert_x
from mlcbuild.compiler.backends.cpu.kernels.registers import (
    MOST_LANES,
    ProductByRegisters,
    byte_level,
    register_lanes,
)
from mlcbuild.compiler.kernels.building import (
    WORTH_THREADS,
    Buffer,
    Expression,
    concatenated,
    float32,
    lanes,
    loop,
    splat,
    statement,
    store,
    with_body,
)
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct, PackedMatrix, match_matrix_product
from mlcbuild.compiler.kernels.shapes import ShapedRule

ReadX = Callable[[Expression, Expression], Expression]
"""Answers a vector's element in float32, by the vector's number and its place along k."""

_PLACES = 1024  # of a panel, which is 128 or 256 KB then
_MANY_TILES = 32  # that threads share well


@dataclass(frozen=True, kw_only=True)
class PanelShape:
    """A panel has so many `rows` of the matrix and at most so many `places` along k; so many `vectors` are multiplied
    at once, each with all rows of a place."""

    rows: int
    vectors: int
    places: int = _PLACES

    def __post_init__(self) -> None:
        if self.rows < 1 or self.vectors < 1 or self.places < 1:
            raise ValueError(f"no shape of a panel: {self}")


@dataclass(frozen=True, kw_only=True)
class _Panels:
    """A shape for a matrix: `rows` fill `registers` of `lanes` floats, and `places` divide k in whole groups."""

    rows: int
    lanes: int
    places: int
    vectors: int

    @property
    def registers(self) -> int:
        """Those that the rows of one place fill."""
        return self.rows // self.lanes


def _match(func: tirx.PrimFunc, target: tvm.target.Target) -> ProductByRegisters | None:
    """None unless `func` is a matrix packed in whole groups along its rows, which fill registers, times more than one
    vector, with at most element-wise blocks after it."""
    product = match_matrix_product(func)
    if product is None or product.rows == 1 or not isinstance(product.matrix, PackedMatrix):
        return None
    matrix, count = product.matrix, register_lanes(target)
    if matrix.by_columns or matrix.group % matrix.per_word or matrix.bits * matrix.per_word > 32:
        return None
    if product.k % matrix.group or product.n % count or not target_has_features("avx2", target):
        return None
    return ProductByRegisters(product=product, lanes=count, bytes=byte_level(target))


def _default(matched: ProductByRegisters) -> PanelShape:
    """Twelve or 24 sums at once, which leaves registers for a place's rows and an element; four registers of rows where
    there are enough tiles of them, as then vectors are read less often."""
    n, count = matched.product.n, matched.lanes
    most = _sums(count)
    if count == MOST_LANES and n % (4 * count) == 0 and n // (4 * count) >= _MANY_TILES:
        return PanelShape(rows=4 * count, vectors=most // 4)
    registers = 2 if n % (2 * count) == 0 else 1
    return PanelShape(rows=registers * count, vectors=most // 2)


def _sums(count: int) -> int:
    """How many registers of `count` floats may hold sums: of 32 with AVX-512, else of 16."""
    return 24 if count == MOST_LANES else 12


def _fits(matched: ProductByRegisters, shape: PanelShape) -> bool:
    """Whether rows fill registers, and places are fewer than there are, where they are not the default."""
    if shape.places != _PLACES and shape.places >= matched.product.k:
        return False
    if matched.product.n % shape.rows or shape.rows % matched.lanes:
        return False
    return shape.rows // matched.lanes * shape.vectors <= _sums(matched.lanes)


def _build(matched: ProductByRegisters, shape: PanelShape) -> tirx.PrimFunc:
    product = matched.product
    several, scratch = _by_panels(product, _panels(matched, shape))
    one = None if isinstance(product.rows, int) else multiply_one(matched)
    if one is None:
        return with_body(product.func, [statement(several)], scratch=scratch)

    def choose() -> None:
        with T.If(product.rows == 1):
            with T.Then():
                for step in one.steps:
                    step()
            with T.Else():
                several()

    return with_body(product.func, [statement(choose)], scratch=[*one.scratch, *scratch])


def _panels(matched: ProductByRegisters, shape: PanelShape) -> _Panels:
    group = matched.product.matrix.group
    groups = matched.product.k // group
    run = max(each for each in range(1, groups + 1) if groups % each == 0 and each * group <= max(shape.places, group))
    return _Panels(rows=shape.rows, lanes=matched.lanes, places=run * group, vectors=shape.vectors)


def _by_panels(product: MatrixProduct, panels: _Panels) -> tuple[Callable[[], None], list[Buffer]]:
    """What makes the statements, and the buffers that they share."""
    rows, k, matrix = product.rows, product.k, product.matrix
    is_float32 = str(product.x.dtype) == "float32"
    x = None if is_float32 else tirx.decl_buffer((rows, k), "float32", name="x_float32")
    waits = k > panels.places and str(product.output.dtype) != "float32"
    sums = tirx.decl_buffer((rows, product.n), "float32", name="sums") if waits else None
    tiles = product.n // panels.rows

    def make() -> None:
        if x is not None:
            convert_x(product, x)
        with loop(tiles, parallel=product.n * k >= WORTH_THREADS) as number:
            with T.sblock("panel"):
                first = T.axis.spatial(tiles, number) * panels.rows
                tile = slice(first, first + panels.rows)
                T.reads(
                    product.x_at(slice(0, rows), slice(0, k)) if x is None else x[0:rows, 0:k],
                    matrix.words[tile, 0 : k // matrix.per_word],
                    matrix.scales[tile, 0 : k // matrix.group],
                )
                written = product.output[tuple(product.output_at(slice(0, rows), tile))]
                T.writes(*([written] if sums is None else [written, sums[0:rows, tile]]))
                read = product.x_at if x is None else functools.partial(_element, x)
                _multiply_panel(product, read, sums, first, panels)
            if product.epilogue is not None:
                with loop(rows) as row, T.vectorized(0, panels.rows) as column:
                    T.add_to_parent(product.epilogue.at(row, number * panels.rows + column))

    return make, [buffer for buffer in (x, sums) if buffer is not None]


def _element(x: Buffer, row: Expression, place: Expression) -> Expression:
    return x[row, place]


def _multiply_panel(product: MatrixProduct, x: ReadX, sums: Buffer | None, first: Expression, panels: _Panels) -> None:
    """All vectors with the panel's rows, the matrix's from `first` on. `sums` has room for those of all vectors, where
    the product itself is not float32; None where it is, or k is one run."""
    runs = product.k // panels.places
    panel = T.alloc_buffer((panels.places, panels.rows), "float32")
    for begins in (True, False) if runs > 1 else (True,):
        with loop(1 if begins else runs - 1) as number:
            begin = 0 if begins else (number + 1) * panels.places
            _restore(product.matrix, panel, first, begin, panels)
            _multiply(product, x, sums, panel, first, begin, panels, begins=begins)
    if sums is not None:
        with loop(product.rows) as row, loop(panels.registers) as register:
            place = lanes(first + register * panels.lanes, panels.lanes)
            _store_result(product, sums[row, place], row, place, panels.lanes)


def _restore(matrix: PackedMatrix, panel: Buffer, first: Expression, begin: Expression, panels: _Panels) -> None:
    """Writes the panel's numbers for the places from `begin` on."""
    count, words = panels.lanes, matrix.group // matrix.per_word
    first_group = begin // matrix.group if isinstance(begin, int) else tirx.floordiv(begin, matrix.group)
    mask = splat(T.uint32((1 << matrix.bits) - 1), count)
    with loop(panels.registers) as register, loop(panels.places // matrix.group) as group:
        row = first + register * count
        stored = [matrix.scales[row + lane, first_group + group] for lane in range(count)]
        scales = T.bind(concatenated([float32(scale, 1) for scale in stored], count))
        with loop(words) as word:
            at = (first_group + group) * words + word
            gathered = T.bind(concatenated([matrix.words[row + lane, at] for lane in range(count)], count))
            for place in range(matrix.per_word):
                integers = (gathered >> splat(T.uint32(matrix.bits * place), count)) & mask
                values = (float32(integers, count) - splat(T.float32(matrix.offset), count)) * scales
                k = (group * words + word) * matrix.per_word + place
                store(panel, values, k, lanes(register * count, count))


def _multiply(
    product: MatrixProduct,
    x: ReadX,
    sums: Buffer | None,
    panel: Buffer,
    first: Expression,
    begin: Expression,
    panels: _Panels,
    *,
    begins: bool,
) -> None:
    """Adds the places of a panel to the sums of all vectors; first as many vectors as registers hold the sums of, then
    the others by a third of them, in pairs, and the last."""
    done: Expression = 0
    for vectors in (each for each in dict.fromkeys((panels.vectors, panels.vectors // 3, 2, 1)) if each):
        rest = product.rows - done
        times = rest // vectors if isinstance(rest, int) else tirx.floordiv(rest, vectors)
        with loop(times) as number:
            _multiply_some(product, x, sums, panel, first, begin, panels, done + number * vectors, vectors, begins)
        done = done + times * vectors


def _multiply_some(
    product: MatrixProduct,
    x: ReadX,
    sums: Buffer | None,
    panel: Buffer,
    first: Expression,
    begin: Expression,
    panels: _Panels,
    row: Expression,
    vectors: int,
    begins: bool,
) -> None:
    count = panels.lanes
    whole = lanes(0, count)
    totals = [[T.alloc_buffer((count,), "float32") for _ in range(panels.registers)] for _ in range(vectors)]
    columns = [lanes(first + register * count, count) for register in range(panels.registers)]
    for line in totals:
        for total in line:
            store(total, splat(T.float32(0), count), whole)
    with loop(panels.places) as place:
        weights = [T.bind(panel[place, lanes(register * count, count)]) for register in range(panels.registers)]
        for vector, line in enumerate(totals):
            element = T.bind(splat(x(row + vector, begin + place), count))
            for weight, total in zip(weights, line, strict=True):
                store(total, total[whole] + element * weight, whole)
    for vector, line in enumerate(totals):
        for total, column in zip(line, columns, strict=True):
            value = total[whole]
            if not begins:
                value = value + _sums_before(product, sums, row + vector, column)
            if sums is None:
                _store_result(product, value, row + vector, column, count)
            else:
                store(sums, value, row + vector, column)


def _sums_before(product: MatrixProduct, sums: Buffer | None, row: Expression, column: Expression) -> Expression:
    return product.output[tuple(product.output_at(row, column))] if sums is None else sums[row, column]


def _store_result(product: MatrixProduct, value: Expression, row: Expression, column: Expression, count: int) -> None:
    dtype = str(product.output.dtype)
    result = value if dtype == "float32" else T.Cast(f"{dtype}x{count}", value)
    store(product.output, result, *product.output_at(row, column))


schedule_panels = ShapedRule(
    name="cpu.panels",
    shape=PanelShape,
    values={"rows": (8, 16, 32, 48, 64), "vectors": (4, 6, 8, 12, 24), "places": (256, 512, 1024)},
    match=_match,
    default=_default,
    fits=_fits,
    build=_build,
)
