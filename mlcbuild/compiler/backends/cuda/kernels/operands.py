"""The two factors of a product as a tensor core takes them: 16 rows of the matrix, and 8 vectors.

A warp goes along a row in steps of 128 places. Thread 4 g + t has of every row, and of every vector, the 32 places that
begin at 32 t, in four words of eight. Two multiplications take a word of each thread: which place of a row is called
which is up to us, as long as both factors say the same. Of packed integers, a word is 32 bits, and its places come in
the pairs (0, 4), (1, 5), (2, 6), (3, 7); of halves it is 16 bytes, and pairs are neighbours.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.kernels.building import Buffer, Expression, store
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct, PackedMatrix

WIDTH = 32  # places of a thread in a step: also those of a group of packed integers
STEP = 4 * WIDTH
WORDS = WIDTH // 8  # of a thread in a step


def fits(product: MatrixProduct) -> bool:
    """Whether both factors are halves, or the matrix integers of four bits in groups of 32, with rows of whole
    groups."""
    matrix: Any = product.matrix
    if str(product.x.dtype) != "float16" or product.k % WIDTH:
        return False
    if not isinstance(matrix, PackedMatrix):
        return str(matrix.dtype) == "float16"
    return (
        (matrix.bits, matrix.per_word, matrix.group) == (4, 8, WIDTH)
        and not matrix.by_columns
        and str(matrix.scales.dtype) == "float16"
        and matrix.offset == int(matrix.offset)
    )


def fits_one_vector(product: MatrixProduct) -> bool:
    """Whether the matrix is packed as the product of one vector wants it (`gemv`)."""
    matrix = product.matrix
    return (
        isinstance(matrix, PackedMatrix)
        and (matrix.bits, matrix.per_word, matrix.group) == (4, 8, WIDTH)
        and not matrix.by_columns
        and matrix.offset == int(matrix.offset)
        and str(matrix.scales.dtype) == str(product.x.dtype) == "float16"
        # Scales are read in pairs.
        and product.k % (2 * WIDTH) == 0
    )


def steps(product: MatrixProduct) -> int:
    """Steps along a row; the last may have less than four groups."""
    return -(-product.k // STEP)


class MatrixRows:
    """What a thread has of `count` rows of the matrix for one step: read first, used later."""

    def __init__(self, product: MatrixProduct, count: int) -> None:
        self._product = product
        self._count = count
        self._packed = isinstance(product.matrix, PackedMatrix)
        self._per_row = WORDS if self._packed else WIDTH // 2
        self._registers = T.alloc_buffer((count * self._per_row,), "uint32", scope="local")
        self._scales = T.alloc_buffer((count,), "uint32", scope="local") if self._packed else None

    def read(self, slot: Expression, row: Expression, group: Expression) -> None:
        """Asks for the 32 places of a row that begin at 32 `group`; behind the row's end there are zeros."""
        whole = self._product.k % STEP == 0
        if not whole:
            gpu.fill(self._registers, T.uint32(0), self._per_row, first=slot * self._per_row)
            if self._scales is not None:
                store(self._scales, T.uint32(0), slot)
        with _where(self._product, group):
            matrix: Any = self._product.matrix
            if self._scales is not None:
                gpu.load_once(gpu.at(self._registers, slot * WORDS), gpu.at(matrix.words, row, group * WORDS))
                gpu.load_twice(gpu.at(self._scales, slot), gpu.at(matrix.scales, row, group))
            else:
                with gpu.unrolled(WORDS) as word:
                    to = gpu.at(self._registers, slot * self._per_row + word * 4)
                    gpu.load_once(to, gpu.at(matrix, row, group * WIDTH + word * 8))

    def take(self, other: MatrixRows) -> None:
        """Has what `other` has."""
        with gpu.unrolled(self._count * self._per_row) as place:
            store(self._registers, other._registers[place], place)
        if self._scales is not None and other._scales is not None:
            with gpu.unrolled(self._count) as slot:
                store(self._scales, other._scales[slot], slot)

    def word(self, slot: Expression, word: Expression, to: Buffer) -> None:
        """The eight halves of a word, into four registers."""
        if self._scales is None:
            with gpu.unrolled(4) as place:
                store(to, self._registers[slot * self._per_row + word * 4 + place], place)
            return
        matrix: Any = self._product.matrix
        gpu.unpack_int4(gpu.at(to, 0), self._registers[slot * WORDS + word], int(matrix.offset))
        gpu.scale(gpu.at(to, 0), self._scales[slot])


def read_vector_word(product: MatrixProduct, to: Expression, row: Expression, place: Expression) -> None:
    """Eight halves of a vector, as they meet those of a matrix's word, into four registers at the address `to`."""
    gpu.load16(to, T.address_of(product.x_at(row, place)))
    if isinstance(product.matrix, PackedMatrix):
        gpu.pair_with_fourth(to)


def _where(product: MatrixProduct, group: Expression) -> AbstractContextManager[None]:
    """A condition on statements, where a row may end before a step does."""
    return nullcontext() if product.k % STEP == 0 else gpu.when(group < product.k // WIDTH)


def multiply(products: Buffer, place: Expression, low: Buffer, high: Buffer, vector: Any) -> None:
    """The four sums at `place` += a word of 16 rows, of which `low` holds the first eight and `high` the others, times
    that of eight vectors, which `vector` gives by the number of the register."""
    for pair in (0, 2):
        gpu.multiply_accumulate(
            gpu.at(products, place),
            (low[pair], high[pair], low[pair + 1], high[pair + 1]),
            (vector(pair), vector(pair + 1)),
        )


def limited(row: Expression, count: int | Expression, *, whole: bool) -> Expression:
    """A row that is there, instead of one behind the last."""
    return row if whole else tirx.min(row, count - 1)
