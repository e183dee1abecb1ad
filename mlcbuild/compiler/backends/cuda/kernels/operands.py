"""The two factors of a product as a tensor core takes them: 16 rows of the matrix, and 8 vectors.

A warp goes along a row in steps. Thread 4 g + t has some places of every row, and of every vector, in words of eight
(`step_layout`). Two multiplications take a word of each thread: which place of a row is called which is up to us, as
long as both factors say the same. Of packed integers, a word is 32 bits, and its places come in the pairs (0, 4),
(1, 5), (2, 6), (3, 7); of halves it is 16 bytes, and pairs are neighbours.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.element_rows import ElementRows, layout_of
from mlcbuild.compiler.backends.cuda.kernels.step_layout import StepLayout
from mlcbuild.compiler.kernels.building import Buffer, Expression, store
from mlcbuild.compiler.kernels.computed_matrix import ComputedMatrix, match_any_computed_matrix
from mlcbuild.compiler.kernels.matmul_pattern import (
    AnyMatrix,
    MatrixProduct,
    PackedMatrix,
    match_matrix,
    match_product,
)

WIDTH = 32  # places of a group of packed integers; rows have whole groups
_WORDS = WIDTH // 8
DTYPES = ("float16", "bfloat16")  # that a tensor core multiplies


def match(func: tirx.PrimFunc, *, gated: bool = False) -> MatrixProduct | None:
    """The product in `func` with a matrix that is stored, packed, or computed in any way of stored numbers, if it holds
    one, with at most one element-wise block after it, which may be `gated`."""
    return match_product(func, _find_matrix, gated=gated)


def _find_matrix(expression: Expression, *, n: tirx.Var, k: tirx.Var) -> AnyMatrix | None:
    found = match_matrix(expression, n=n, k=k)
    if isinstance(found, PackedMatrix) and not _is_nibbles(found):
        found = None
    return match_any_computed_matrix(expression, n=n, k=k) if found is None else found


def _is_nibbles(matrix: PackedMatrix) -> bool:
    """Whether words are read 16 bytes at a time, four bits a number, with a scale for each."""
    return (
        (matrix.bits, matrix.per_word, matrix.group) == (4, 8, WIDTH)
        and not matrix.by_columns
        and str(matrix.scales.dtype) in DTYPES
        and matrix.offset == int(matrix.offset)
    )


def fits(product: MatrixProduct) -> bool:
    """Whether vectors are of halves or bfloat16, the matrix of the same, or restored to it, and rows are whole
    groups."""
    matrix: Any = product.matrix
    dtype = str(product.x.dtype)
    if dtype not in DTYPES or product.k % WIDTH:
        return False
    if isinstance(matrix, PackedMatrix):
        return _is_nibbles(matrix) and str(matrix.scales.dtype) == dtype
    return isinstance(matrix, ComputedMatrix) or str(matrix.dtype) == dtype


def fits_one_vector(product: MatrixProduct) -> bool:
    """Whether the matrix is packed as the product of one vector wants it (`gemv`)."""
    matrix = product.matrix
    return (
        isinstance(matrix, PackedMatrix)
        and (matrix.bits, matrix.per_word, matrix.group) == (4, 8, WIDTH)
        and not matrix.by_columns
        and matrix.offset == int(matrix.offset)
        and str(matrix.scales.dtype) == str(product.x.dtype)
        and str(product.x.dtype) in DTYPES
        # Scales are read in pairs.
        and product.k % (2 * WIDTH) == 0
    )


_OF_NIBBLES = StepLayout(piece=WIDTH, pieces=1)
_OF_NUMBERS = StepLayout(piece=8, pieces=4)


def layout(product: MatrixProduct) -> StepLayout:
    """Which places a thread has of a row, and of the vectors."""
    if isinstance(product.matrix, ComputedMatrix):
        return layout_of(product.matrix)
    return _OF_NIBBLES if isinstance(product.matrix, PackedMatrix) else _OF_NUMBERS


class Rows(Protocol):
    """What a thread has of some rows of the matrix for one step: read first, used later."""

    def read(self, slot: Expression, row: Expression, step: Expression, thread: Expression) -> None:
        """Asks for the places of a row that thread `thread` of four has in a step."""

    def take(self, other: Any) -> None:
        """Has what `other`, of the same class, has."""

    def word(self, slot: Expression, word: Expression, to: Buffer) -> None:
        """The eight numbers of a word, into four registers."""


def rows(product: MatrixProduct, count: int) -> Rows:
    """A thread's room for `count` rows of the matrix."""
    if isinstance(product.matrix, ComputedMatrix):
        return ElementRows(product, layout(product), count)
    return _NibbleRows(product, count) if isinstance(product.matrix, PackedMatrix) else _NumberRows(product, count)


class _NibbleRows:
    """Of integers of four bits, each 32 of which have a scale."""

    def __init__(self, product: MatrixProduct, count: int) -> None:
        self._product = product
        self._count = count
        self._registers = T.alloc_buffer((count * _WORDS,), "uint32", scope="local")
        self._scales = T.alloc_buffer((count,), "uint32", scope="local")

    def read(self, slot: Expression, row: Expression, step: Expression, thread: Expression) -> None:
        """As `Rows.read`; behind the row's end there are zeros."""
        matrix: Any = self._product.matrix
        group = step * 4 + thread
        if self._product.k % _OF_NIBBLES.step:
            gpu.fill(self._registers, T.uint32(0), _WORDS, first=slot * _WORDS)
            store(self._scales, T.uint32(0), slot)
        with _where(self._product, group * WIDTH):
            gpu.load_once(gpu.at(self._registers, slot * _WORDS), gpu.at(matrix.words, row, group * _WORDS))
            gpu.load_twice(gpu.at(self._scales, slot), gpu.at(matrix.scales, row, group))

    def take(self, other: _NibbleRows) -> None:
        """As `Rows.take`."""
        with gpu.unrolled(self._count * _WORDS) as place:
            store(self._registers, other._registers[place], place)
        with gpu.unrolled(self._count) as slot:
            store(self._scales, other._scales[slot], slot)

    def word(self, slot: Expression, word: Expression, to: Buffer) -> None:
        """As `Rows.word`."""
        matrix: Any = self._product.matrix
        dtype = str(self._product.x.dtype)
        unpack = gpu.unpack_int4 if dtype == "float16" else gpu.unpack_int4_bfloat16
        unpack(gpu.at(to, 0), self._registers[slot * _WORDS + word], int(matrix.offset))
        gpu.scale(gpu.at(to, 0), self._scales[slot], dtype)


class _NumberRows:
    """Of halves, or bfloat16."""

    def __init__(self, product: MatrixProduct, count: int) -> None:
        self._product = product
        self._count = count
        self._per_row = _OF_NUMBERS.words * 4
        self._registers = T.alloc_buffer((count * self._per_row,), "uint32", scope="local")

    def read(self, slot: Expression, row: Expression, step: Expression, thread: Expression) -> None:
        """As `Rows.read`; behind the row's end there are zeros."""
        if self._product.k % _OF_NUMBERS.step:
            gpu.fill(self._registers, T.uint32(0), self._per_row, first=slot * self._per_row)
        with gpu.unrolled(_OF_NUMBERS.words) as word:
            place = step * _OF_NUMBERS.step + _OF_NUMBERS.place(word, thread)
            with _where(self._product, place):
                to = gpu.at(self._registers, slot * self._per_row + word * 4)
                gpu.load_once(to, gpu.at(self._product.matrix, row, place))

    def take(self, other: _NumberRows) -> None:
        """As `Rows.take`."""
        with gpu.unrolled(self._count * self._per_row) as place:
            store(self._registers, other._registers[place], place)

    def word(self, slot: Expression, word: Expression, to: Buffer) -> None:
        """As `Rows.word`."""
        with gpu.unrolled(4) as place:
            store(to, self._registers[slot * self._per_row + word * 4 + place], place)


def read_vector_word(product: MatrixProduct, to: Expression, row: Expression, place: Expression) -> None:
    """Eight numbers of a vector, as they meet those of a matrix's word, into four registers at the address `to`, unless
    the vector ends before them."""
    with _where(product, place):
        gpu.load16(to, T.address_of(product.x_at(row, place)))
        if isinstance(product.matrix, PackedMatrix):
            gpu.pair_with_fourth(to)


def _where(product: MatrixProduct, place: Expression) -> AbstractContextManager[None]:
    """A condition on statements, where a row may end before a step does."""
    return nullcontext() if product.k % layout(product).step == 0 else gpu.when(place < product.k)


def multiply(dtype: str, products: Buffer, place: Expression, low: Buffer, high: Buffer, vector: Any) -> None:
    """The four sums at `place` += a word of 16 rows, of which `low` holds the first eight and `high` the others, times
    that of eight vectors, which `vector` gives by the number of the register."""
    for pair in (0, 2):
        gpu.multiply_accumulate(
            gpu.at(products, place),
            (low[pair], high[pair], low[pair + 1], high[pair + 1]),
            (vector(pair), vector(pair + 1)),
            dtype,
        )


def limited(row: Expression, count: int | Expression, *, whole: bool) -> Expression:
    """A row that is there, instead of one behind the last."""
    return row if whole else tirx.min(row, count - 1)
