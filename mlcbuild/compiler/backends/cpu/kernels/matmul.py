"""A matrix times any number of vectors: prefill, batches, and matrices that are not packed.

Threads share the matrix's rows, in tiles. A tile is restored to float32 once, into memory that stays in the cache, and
used for all vectors: a few of them at a time with a few matrix rows, each pair summed in a register along k. A packed
matrix that is stored by columns is not restored: see `matmul_columns`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels.gemv import Parts, multiply_one
from mlcbuild.compiler.backends.cpu.kernels.matmul_columns import COLUMNS, multiply_columns
from mlcbuild.compiler.backends.cpu.kernels.registers import (
    MOST_LANES,
    ProductByRegisters,
    byte_level,
    register_lanes,
)
from mlcbuild.compiler.kernels.building import (
    LANES,
    WORTH_THREADS,
    Buffer,
    Expression,
    float32,
    horizontal_sum,
    lanes,
    loop,
    splat,
    statement,
    store,
    with_body,
)
from mlcbuild.compiler.kernels.computed_matrix import ComputedMatrix
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct, PackedMatrix, match_matrix_product
from mlcbuild.compiler.kernels.shapes import ShapedRule

TILE = 8  # matrix rows that are restored together


@dataclass(frozen=True, kw_only=True)
class MatmulShape:
    """How the work of several vectors is cut: `tile` rows of the matrix are restored together, of a matrix that is not
    stored by columns; `vectors` are multiplied with `rows` of them at a time, each pair in a register of its own."""

    tile: int = TILE
    vectors: int = 4
    rows: int = 2

    def __post_init__(self) -> None:
        if self.tile < 1 or self.vectors < 1 or self.rows < 1 or self.tile % self.rows:
            raise ValueError(f"no way to cut a product: {self}")
        if self.vectors * self.rows > 16:
            raise ValueError(f"more sums than registers: {self}")


_DEFAULT = MatmulShape()


@dataclass(frozen=True, kw_only=True)
class _Tile:
    """Rows of the matrix in float32: `at(row, k, count)` reads some of a tile's row, beginning at k; eight of a matrix
    whose elements are computed as they are used."""

    first: Expression  # the tile's first row
    rows: int
    restored: Buffer | None
    product: MatrixProduct

    @property
    def is_computed(self) -> bool:
        """Whether elements are computed as they are used."""
        return self.restored is None and isinstance(self.product.matrix, ComputedMatrix)

    def at(self, row: int, k: Expression, count: int) -> Expression:
        places = lanes(k, count)
        if self.restored is None:
            matrix: Buffer = self.product.matrix
            if isinstance(matrix, ComputedMatrix):
                return matrix.at(self.first + row, k)
            return float32(matrix[self.first + row, places], count)
        return self.restored[row, places]


def _match(func: tirx.PrimFunc, target: tvm.target.Target) -> ProductByRegisters | None:
    """None unless `func` is a matrix product whose rows are whole vectors of eight, with at most element-wise blocks
    after it."""
    product = match_matrix_product(func)
    if product is None or product.k % LANES or not whole_words(product.matrix):
        return None
    count = largest_divisor(product.k, register_lanes(target))
    return ProductByRegisters(product=product, lanes=count, bytes=byte_level(target))


def whole_words(matrix: Buffer | PackedMatrix) -> bool:
    """Whether groups are whole words, of a matrix that is packed. The last group of a row may be short."""
    if not isinstance(matrix, PackedMatrix):
        return True
    return matrix.group % matrix.per_word == 0 and matrix.bits * matrix.per_word <= 32


def _groups(matrix: PackedMatrix, k: int) -> int:
    """Groups of a row of k places; the last may be short."""
    return -(-k // matrix.group)


def _build(matched: ProductByRegisters, shape: MatmulShape) -> tirx.PrimFunc:
    product = matched.product
    several = _multiply_several(product, shape, matched.lanes)
    one = None if isinstance(product.rows, int) else _one_of_several(matched)
    if one is None:
        return with_body(product.func, [statement(step) for step in several.steps], scratch=several.scratch)

    def choose() -> None:
        with T.If(product.rows == 1):
            with T.Then():
                for step in one.steps:
                    step()
            with T.Else():
                for step in several.steps:
                    step()

    return with_body(product.func, [statement(choose)], scratch=[*one.scratch, *several.scratch])


def _one_of_several(matched: ProductByRegisters) -> Parts | None:
    """The way of one row, where it differs from that of several: at run time there may be one."""
    matrix = matched.product.matrix
    if isinstance(matrix, PackedMatrix):
        return multiply_one(matched)
    return None if str(matrix.dtype) == "float32" else _multiply_several(dataclasses.replace(matched.product, rows=1))


def _multiply_several(product: MatrixProduct, shape: MatmulShape = _DEFAULT, count: int = LANES) -> Parts:
    rows, k = product.rows, product.k
    matrix = product.matrix
    by_columns = isinstance(matrix, PackedMatrix) and matrix.by_columns
    tile_rows = largest_divisor(product.n, COLUMNS if by_columns else shape.tile)
    steps: list[Callable[[], None]] = []
    scratch: list[Buffer] = []
    x: Buffer | None = None
    if str(product.x.dtype) != "float32":
        x = tirx.decl_buffer((rows, k), "float32", name="x_float32")
        scratch.append(x)
        steps.append(functools.partial(convert_x, product, x))

    def multiply() -> None:
        tiles = product.n // tile_rows
        with loop(tiles, parallel=product.n * k >= WORTH_THREADS) as number:
            with T.sblock("matmul"):
                first = T.axis.spatial(tiles, number) * tile_rows
                T.reads(*_reads(product, x, first, tile_rows))
                T.writes(product.output[tuple(product.output_at(slice(0, rows), slice(first, first + tile_rows)))])
                if by_columns:
                    multiply_columns(product, lambda row, place: _x(product, x, row, place), first, tile_rows)
                else:
                    multiply_tile(product, x, restore(product, first, tile_rows), shape, count)
            if product.epilogue is not None:
                with loop(rows) as row, T.vectorized(0, tile_rows) as column:
                    T.add_to_parent(product.epilogue.at(row, number * tile_rows + column))

    steps.append(multiply)
    return Parts(steps=steps, scratch=scratch)


def largest_divisor(number: int, limit: int) -> int:
    """The largest power of two up to `limit` that divides `number`."""
    divisor = limit
    while number % divisor:
        divisor //= 2
    return divisor


def _reads(product: MatrixProduct, x: Buffer | None, first: Expression, rows: int) -> list[Expression]:
    k = slice(0, product.k)
    read = [product.x_at(slice(0, product.rows), k) if x is None else x[0 : product.rows, k]]
    matrix = product.matrix
    if isinstance(matrix, PackedMatrix):
        groups = _groups(matrix, product.k)
        for buffer, size in ((matrix.words, groups * (matrix.group // matrix.per_word)), (matrix.scales, groups)):
            region = (slice(first, first + rows), slice(0, size))
            read.append(buffer[region[::-1] if matrix.by_columns else region])
    elif isinstance(matrix, ComputedMatrix):
        read += [buffer[tuple(slice(0, size) for size in buffer.shape)] for buffer in matrix.buffers]
    else:
        read.append(matrix[first : first + rows, k])
    return read


def convert_x(product: MatrixProduct, x: Buffer) -> None:
    """Writes all vectors in float32 into `x`."""
    with loop(product.rows) as number, T.sblock("convert"):
        row = T.axis.spatial(product.rows, number)
        T.reads(product.x_at(row, slice(0, product.k)))
        T.writes(x[row, 0 : product.k])
        with loop(product.k // LANES) as step:
            places = lanes(step * LANES, LANES)
            store(x, float32(product.x_at(row, places), LANES), row, places)


def restore(product: MatrixProduct, first: Expression, rows: int) -> _Tile:
    """Writes a tile in float32, unless the matrix is, or each of its elements is used once."""
    matrix, k = product.matrix, product.k
    if not isinstance(matrix, PackedMatrix) and (str(matrix.dtype) == "float32" or product.rows == 1):
        return _Tile(first=first, rows=rows, restored=None, product=product)
    width = _groups(matrix, k) * matrix.group if isinstance(matrix, PackedMatrix) else k
    restored = T.alloc_buffer((rows, width), "float32")
    with loop(rows) as row:
        if not isinstance(matrix, PackedMatrix):
            with loop(k // LANES) as step:
                places = lanes(step * LANES, LANES)
                if isinstance(matrix, ComputedMatrix):
                    store(restored, matrix.at(first + row, step * LANES), row, places)
                else:
                    store(restored, float32(matrix[first + row, places], LANES), row, places)
        else:
            _restore_row(matrix, k, first + row, restored, row)
    return _Tile(first=first, rows=rows, restored=restored, product=product)


def _restore_row(matrix: PackedMatrix, k: int, n: Expression, restored: Buffer, row: Expression) -> None:
    count = matrix.per_word
    shifts = T.Ramp(T.uint32(0), T.uint32(matrix.bits), count)
    mask = splat(T.uint32((1 << matrix.bits) - 1), count)
    words_per_group = matrix.group // count
    with loop(_groups(matrix, k)) as group:
        scale = T.bind(float32(matrix.scales[n, group], 1))
        with loop(words_per_group) as word:
            place = group * words_per_group + word
            integers = (splat(matrix.words[n, place], count) >> shifts) & mask
            values = (float32(integers, count) - splat(T.float32(matrix.offset), count)) * splat(scale, count)
            store(restored, values, row, lanes(place * count, count))


def multiply_tile(
    product: MatrixProduct, x: Buffer | None, tile: _Tile, shape: MatmulShape = _DEFAULT, count: int = LANES
) -> None:
    """All vectors with a tile, in registers of `count` floats, which k is a multiple of; `x` has the vectors in
    float32, None where they are stored so."""
    rows, vectors = product.rows, shape.vectors
    count = LANES if tile.is_computed else count
    if not isinstance(rows, int) or rows >= vectors:
        matrix_rows = largest_divisor(tile.rows, shape.rows)
        with loop(tirx.floordiv(rows, vectors)) as number:
            _multiply_some(product, x, tile, number * vectors, vectors, matrix_rows, count)
    if not isinstance(rows, int) or rows % vectors:
        whole = tirx.floordiv(rows, vectors) * vectors
        with loop(rows - whole) as number:
            _multiply_some(product, x, tile, whole + number, 1, largest_divisor(tile.rows, 4), count)


def _multiply_some(
    product: MatrixProduct,
    x: Buffer | None,
    tile: _Tile,
    row: Expression,
    vectors: int,
    matrix_rows: int,
    count: int,
) -> None:
    """`vectors` vectors, beginning at `row`, with the whole tile, `matrix_rows` of its rows at a time."""
    whole = lanes(0, count)
    with loop(tile.rows // matrix_rows) as part:
        sums = [[T.alloc_buffer((count,), "float32") for _ in range(matrix_rows)] for _ in range(vectors)]
        for line in sums:
            for total in line:
                store(total, splat(T.float32(0), count), whole)
        together = _together(tile, product.k)
        with loop(product.k // (count * together)) as step:
            for place in range(together):
                k = (step * together + place) * count
                weights = [T.bind(tile.at(part * matrix_rows + column, k, count)) for column in range(matrix_rows)]
                for vector, line in enumerate(sums):
                    values = T.bind(_x(product, x, row + vector, lanes(k, count)))
                    for weight, total in zip(weights, line, strict=True):
                        store(total, total[whole] + values * weight, whole)
        for vector, line in enumerate(sums):
            for column, total in enumerate(line):
                indices = product.output_at(row + vector, tile.first + part * matrix_rows + column)
                value = horizontal_sum(total, count)
                store(product.output, T.Cast(str(product.output.dtype), value), *indices)


def _together(tile: _Tile, k: int) -> int:
    """How many vectors of a row are read in a step: of a matrix whose elements are computed as they are used, those of
    a group, whose scale is then computed once."""
    return largest_divisor(k // LANES, 4) if tile.is_computed else 1


def _x(product: MatrixProduct, x: Buffer | None, row: Expression, k: Expression) -> Expression:
    return product.x_at(row, k) if x is None else x[row, k]


def _default(matched: ProductByRegisters) -> MatmulShape:
    """The tile is as large as the matrix's rows let it be. There are twice as many registers where they are wide."""
    tile = largest_divisor(matched.product.n, TILE)
    rows = 4 if matched.lanes == MOST_LANES else _DEFAULT.rows
    return MatmulShape(tile=tile, rows=min(rows, tile))


def _has_tiles(matched: ProductByRegisters, shape: MatmulShape) -> bool:
    """Whether a shape other than the default makes a difference that it names."""
    product, matrix = matched.product, matched.product.matrix
    by_columns = isinstance(matrix, PackedMatrix) and matrix.by_columns
    return product.rows != 1 and not by_columns and product.n % shape.tile == 0


schedule_matmul = ShapedRule(
    name="cpu.matmul",
    shape=MatmulShape,
    values={"tile": (4, 8, 16, 32), "vectors": (2, 4, 6, 8), "rows": (1, 2, 4)},
    match=_match,
    default=_default,
    fits=_has_tiles,
    build=_build,
    version=2,  # most packed matrices went to cpu.panels
)
