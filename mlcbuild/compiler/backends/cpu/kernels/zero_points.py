"""A matrix of integers with zero points, in AWQ's layout, times vectors.

Words next to each other belong to neighbouring rows n, and one vector of words has eight vectors of integers, each of
rows that are eight apart. Threads share the rows, in tiles of such a vector. Sums go along k, one register for each
nibble: of a group's integers without their zero points, and then of groups, each times its scales:

    y[n] = Σ_groups scales[g, n] · Σ_k x[k] · (integers[k, n] - zeros[g, n])

For several vectors a group's integers are made floats once, and kept in the cache. A vector has the same operations in
the same order alone and among others, so it has the same numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels.matmul import largest_divisor
from mlcbuild.compiler.backends.cpu.kernels.registers import MOST_LANES, register_lanes
from mlcbuild.compiler.kernels.building import (
    LANES,
    WORTH_THREADS,
    Buffer,
    Expression,
    float32,
    lanes,
    loop,
    prefetch,
    splat,
    statement,
    store,
    with_body,
)
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct, match_product
from mlcbuild.compiler.kernels.zero_point_matrix import BITS, NIBBLES, ZeroPointMatrix, match_zero_point_matrix

_VECTORS = 4  # that are multiplied together
_AHEAD = 16  # rows of words that are asked for early


@dataclass(frozen=True, kw_only=True)
class _Run:
    """Equal groups along k: `count` of `size` places, from the group `first` on."""

    first: int
    count: int
    size: int


@dataclass(frozen=True, kw_only=True)
class _Kernel:
    """A product, and what its parts share: `x` has the vectors in float32, `sums` (rows, n) the sums, in the order of
    nibbles within a tile of `words` words. `together` nibbles are summed at once."""

    product: MatrixProduct
    matrix: ZeroPointMatrix
    words: int
    together: int
    x: Buffer
    sums: Buffer

    @property
    def tile(self) -> int:
        """Rows of the matrix."""
        return self.words * NIBBLES

    @property
    def runs(self) -> list[_Run]:
        whole, rest = divmod(self.product.k, self.matrix.group)
        runs = [_Run(first=0, count=whole, size=self.matrix.group)] if whole else []
        return [*runs, _Run(first=whole, count=1, size=rest)] if rest else runs


def schedule_zero_points(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """None unless `func` is a product with such a matrix, with at most an element-wise block after it."""
    product = match_product(func, match_zero_point_matrix)
    if product is None or product.k % LANES or product.n % (2 * NIBBLES):
        return None
    words = largest_divisor(product.n // NIBBLES, register_lanes(target))
    kernel = _Kernel(
        product=product,
        matrix=product.matrix,
        words=words,
        together=4 if register_lanes(target) == MOST_LANES else 2,
        x=tirx.decl_buffer((product.rows, product.k), "float32", name="x_float32"),
        sums=tirx.decl_buffer((product.rows, product.n), "float32", name="sums"),
    )
    steps = [statement(functools.partial(step, kernel)) for step in (_convert, _multiply)]
    return with_body(product.func, steps, scratch=[kernel.x, kernel.sums])


def _convert(kernel: _Kernel) -> None:
    product = kernel.product
    with loop(product.rows) as number, T.sblock("convert"):
        row = T.axis.spatial(product.rows, number)
        T.reads(product.x_at(row, slice(0, product.k)))
        T.writes(kernel.x[row, 0 : product.k])
        with loop(product.k // LANES) as step:
            places = lanes(step * LANES, LANES)
            store(kernel.x, float32(product.x_at(row, places), LANES), row, places)


def _multiply(kernel: _Kernel) -> None:
    product, matrix, tile = kernel.product, kernel.matrix, kernel.tile
    rows, tiles = product.rows, product.n // kernel.tile
    groups = -(-product.k // matrix.group)
    with loop(tiles, parallel=product.n * product.k >= WORTH_THREADS) as number:
        with T.sblock("zero_points"):
            place = T.axis.spatial(tiles, number)
            first, word = place * tile, place * kernel.words
            of_words, of_rows = slice(word, word + kernel.words), slice(first, first + tile)
            T.reads(
                kernel.x[0:rows, 0 : product.k],
                matrix.words[0 : product.k, of_words],
                matrix.zeros[0:groups, of_words],
                matrix.scales[0:groups, of_rows],
            )
            T.writes(kernel.sums[0:rows, of_rows], product.output[tuple(product.output_at(slice(0, rows), of_rows))])
            _clear(kernel, first)
            for run in kernel.runs:
                with loop(run.count) as step:
                    _add_group(kernel, run, run.first + step, word)
            _write(kernel, first)
        if product.epilogue is not None:
            with loop(rows) as row, T.vectorized(0, tile) as column:
                T.add_to_parent(product.epilogue.at(row, number * tile + column))


def _clear(kernel: _Kernel, first: Expression) -> None:
    with loop(kernel.product.rows) as row, loop(NIBBLES) as nibble:
        places = lanes(first + nibble * kernel.words, kernel.words)
        store(kernel.sums, splat(T.float32(0), kernel.words), row, places)


def _write(kernel: _Kernel, first: Expression) -> None:
    """The sums in the order of rows, in the product's type."""
    product = kernel.product
    with loop(product.rows) as row, loop(kernel.words) as word:
        for nibble, place in enumerate(kernel.matrix.rows):
            total = kernel.sums[row, first + nibble * kernel.words + word]
            indices = product.output_at(row, first + word * NIBBLES + place)
            store(product.output, T.Cast(str(product.output.dtype), total), *indices)


def _add_group(kernel: _Kernel, run: _Run, group: Expression, word: Expression) -> None:
    """Adds a group of all vectors to the sums of a tile."""
    rows, count = kernel.product.rows, kernel.words
    zeros = T.bind(kernel.matrix.zeros[group, lanes(word, count)])
    begin = group * kernel.matrix.group

    def integers(words: Expression, nibble: int, zero: Expression) -> Expression:
        return _integers(words, nibble, count) - zero

    offsets = [T.bind(_integers(zeros, nibble, count)) for nibble in range(NIBBLES)]

    def one(row: Expression) -> None:
        def read(k: Expression) -> Callable[[int], Expression]:
            prefetch(kernel.matrix.words[begin + k + _AHEAD, word])
            words = T.bind(kernel.matrix.words[begin + k, lanes(word, count)])
            return lambda nibble: integers(words, nibble, offsets[nibble])

        _add_some(kernel, run, group, word, row, 1, NIBBLES, read)

    def several() -> None:
        restored = T.alloc_buffer((run.size * NIBBLES * count,), "float32")
        with loop(run.size) as k:
            words = T.bind(kernel.matrix.words[begin + k, lanes(word, count)])
            for nibble in range(NIBBLES):
                value = integers(words, nibble, offsets[nibble])
                store(restored, value, lanes((k * NIBBLES + nibble) * count, count))

        def read(k: Expression) -> Callable[[int], Expression]:
            return lambda nibble: restored[lanes((k * NIBBLES + nibble) * count, count)]

        whole = tirx.floordiv(rows, _VECTORS)
        with loop(whole) as number:
            _add_some(kernel, run, group, word, number * _VECTORS, _VECTORS, kernel.together, read)
        with loop(rows - whole * _VECTORS) as number:
            _add_some(kernel, run, group, word, whole * _VECTORS + number, 1, NIBBLES, read)

    if isinstance(rows, int):
        one(T.int64(0)) if rows == 1 else several()
        return
    with T.If(rows == 1):
        with T.Then():
            one(T.int64(0))
        with T.Else():
            several()


def _add_some(
    kernel: _Kernel,
    run: _Run,
    group: Expression,
    word: Expression,
    row: Expression,
    vectors: int,
    together: int,
    read: Callable[[Expression], Callable[[int], Expression]],
) -> None:
    """Of `vectors` vectors, beginning at `row`, `together` nibbles at a time; `read` gives the integers of a nibble at
    a place along k within the group."""
    count, first = kernel.words, word * NIBBLES
    whole = lanes(0, count)
    for begin in range(0, NIBBLES, together):
        nibbles = range(begin, begin + together)
        sums = [[T.alloc_buffer((count,), "float32") for _ in nibbles] for _ in range(vectors)]
        for line in sums:
            for total in line:
                store(total, splat(T.float32(0), count), whole)
        with loop(run.size) as k:
            at = read(k)
            weights = [T.bind(at(nibble)) for nibble in nibbles]
            for vector, line in enumerate(sums):
                value = T.bind(splat(kernel.x[row + vector, group * kernel.matrix.group + k], count))
                for weight, total in zip(weights, line, strict=True):
                    store(total, total[whole] + value * weight, whole)
        for place, nibble in enumerate(nibbles):
            rows = T.Ramp(first + kernel.matrix.rows[nibble], T.int64(NIBBLES), count)
            scales = T.bind(float32(kernel.matrix.scales[group, rows], count))
            places = lanes(first + nibble * count, count)
            for vector, line in enumerate(sums):
                total = kernel.sums[row + vector, places] + line[place][whole] * scales
                store(kernel.sums, total, row + vector, places)


def _integers(words: Expression, nibble: int, count: int) -> Expression:
    shifted = words >> splat(T.uint32(BITS * nibble), count)
    return float32(shifted & splat(T.uint32((1 << BITS) - 1), count), count)
