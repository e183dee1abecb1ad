"""A matrix times up to eight vectors, or sixteen: as fast as times one, or nearly, since memory's speed is what counts.

A block has a few tiles of 16 rows; its warps share the places of the rows and add up what they have at the end. Vectors
are the columns of what the tensor core computes, eight at a time, so integers are multiplied by their scales before.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda import architectures
from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels import operands, results
from mlcbuild.compiler.kernels.building import Buffer, Expression, store
from mlcbuild.compiler.kernels.computed_matrix import ComputedMatrix
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct, PackedMatrix

MOST = 8  # vectors that a tensor core takes at a time
SIZES = (MOST, 2 * MOST)  # vectors of a kernel
ROWS = 16
WARP = 32


@dataclass(frozen=True, kw_only=True)
class FewShape:
    """How the work is shared: `warps` of a block, `tiles` of 16 rows that it has, and `ahead`, the number of steps that
    are asked for before the first is used."""

    warps: int = 8
    tiles: int = 1
    ahead: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.warps <= 32 or self.tiles < 1 or self.ahead < 1:
            raise ValueError(f"no way to share the work: {self}")


def shape_for(product: MatrixProduct, vectors: int) -> FewShape:
    """Of eleven shapes, measured on an H200 over eight matrices of Llama-3-8B and TinyLlama, the fastest or within 5 %
    of it for each, but for one (20 %). All blocks read the same vectors, so a large matrix has fewer, larger blocks."""
    n, k, two = product.n, product.k, vectors > MOST
    steps = operands.layout(product).steps(k)
    if not isinstance(product.matrix, PackedMatrix) and two:
        return FewShape(tiles=4 if n >= 1 << 13 else 1, ahead=1)
    if isinstance(product.matrix, ComputedMatrix):
        # Of five, over four layers and the head of Llama-3-8B in mxfp4 and bfloat16.
        return FewShape(warps=min(16 if n < 1 << 13 else 8, steps), ahead=2)
    if not isinstance(product.matrix, PackedMatrix):
        return FewShape(ahead=1)
    warps = min(16, steps)
    if n < 1 << 12:
        return FewShape(warps=warps, ahead=2)
    if n < 1 << 13:
        if n // (2 * ROWS) <= architectures.MULTIPROCESSORS:
            return FewShape(warps=warps, tiles=2, ahead=2 if k >= 1 << 13 and not two else 1)
        return FewShape(tiles=2 if two else 1, ahead=1)
    if n < 1 << 14:
        return FewShape(tiles=2, ahead=1)
    return FewShape(warps=4, tiles=4, ahead=2) if two else FewShape(tiles=4, ahead=1)


def multiply_few(product: MatrixProduct, shape: FewShape, *, vectors: int = MOST, early: bool = False) -> None:
    """The kernel's body, for at most `vectors` vectors, one of `SIZES`. With `early` the first words of the matrix,
    which no kernel before this one has made, are asked for before the kernels that make the vectors have ended."""
    rows = ROWS * shape.tiles
    with (
        T.thread_binding(0, -(-product.n // rows), thread="blockIdx.x") as block,
        T.thread_binding(0, shape.warps, thread="threadIdx.y") as warp,
        T.thread_binding(0, WARP, thread="threadIdx.x") as lane,
    ):
        multiply_tiles(product, shape, block * rows, warp, lane, vectors=vectors, early=early)


def multiply_tiles(
    product: MatrixProduct,
    shape: FewShape,
    first: Expression,
    warp: Expression,
    lane: Expression,
    *,
    vectors: int = MOST,
    early: bool = False,
) -> None:
    """What a thread does for a block's tiles of the matrix, from its row `first` on, with at most `vectors` vectors."""
    _Block(product, shape, first, warp, lane, vectors=vectors, early=early).run()


class _Block:
    """A thread of a block. `g` and `t` are its places in what the tensor core takes and gives."""

    def __init__(
        self,
        product: MatrixProduct,
        shape: FewShape,
        first: Expression,
        warp: Expression,
        lane: Expression,
        *,
        vectors: int,
        early: bool,
    ) -> None:
        self.product = product
        self.shape = shape
        self.first = first
        self.warp = warp
        self.lane = lane
        self.vectors = vectors
        self.eights = vectors // MOST
        self.early = early
        self.g, self.t = T.bind(lane // 4), T.bind(lane % 4)
        self.layout = operands.layout(product)
        self.steps = self.layout.steps(product.k)
        self.turns = -(-self.steps // shape.warps)
        ahead = min(shape.ahead, self.turns)
        self.matrices = [operands.rows(product, shape.tiles * 2) for _ in range(ahead)]
        self.x_registers = self.eights * self.layout.words * 4
        self.x = T.alloc_buffer((ahead * self.x_registers,), "uint32", scope="local")
        self.sums = T.alloc_buffer((self.eights * shape.tiles * 4,), "float32", scope="local")

    def run(self) -> None:
        gpu.fill(self.sums, T.float32(0), self.eights * self.shape.tiles * 4)
        ahead = len(self.matrices)
        for number in range(ahead):
            with self.where_there_is(number):
                self.read_matrix(number, number)
        if self.early:
            gpu.wait_for_inputs()
        for number in range(ahead):
            with self.where_there_is(number):
                self.read_vectors(number, number)
        rounds = -(-self.turns // ahead)
        if rounds > 1:
            with T.serial(0, rounds - 1) as round_:
                for number in range(ahead):
                    turn = round_ * ahead + number
                    self.multiply(number)
                    with self.where_there_is(turn + ahead, last=(rounds - 1) * ahead + number):
                        self.read_matrix(number, turn + ahead)
                        self.read_vectors(number, turn + ahead)
        for number in range(ahead):
            with self.where_there_is((rounds - 1) * ahead + number):
                self.multiply(number)
        _finish(self.product, self.shape, self.first, self.warp, self.lane, self.sums, vectors=self.vectors)

    def step(self, turn: Expression | int) -> Expression:
        return turn * self.shape.warps + self.warp

    def where_there_is(self, turn: Expression | int, *, last: int | None = None) -> AbstractContextManager[None]:
        """A condition on statements, where not every warp has a step in a turn; `last` is the largest that it takes."""
        most = turn if isinstance(turn, int) else last
        if most is not None and (most + 1) * self.shape.warps <= self.steps:
            return nullcontext()
        return gpu.when(self.step(turn) < self.steps)

    def read_matrix(self, number: int, turn: Expression | int) -> None:
        """Asks for a step's part of all rows."""
        product, tiles = self.product, self.shape.tiles
        with gpu.unrolled(tiles * 2) as slot:
            row = operands.limited(self.first + slot * 8 + self.g, product.n, whole=product.n % (ROWS * tiles) == 0)
            self.matrices[number].read(slot, results.matrix_row(product, row), self.step(turn), self.t)

    def read_vectors(self, number: int, turn: Expression | int) -> None:
        """Asks for a step's part of all vectors. Each is a column of what the tensor core computes, so in place of one
        behind the last may be any; of places behind a row's end there are zeros."""
        product, layout = self.product, self.layout
        if product.k % layout.step:
            gpu.fill(self.x, T.uint32(0), self.x_registers, first=number * self.x_registers)
        for eight in range(self.eights):
            rows = product.rows
            known = isinstance(rows, int) and rows == self.vectors
            vector = operands.limited(eight * MOST + self.g, rows, whole=known)
            with gpu.unrolled(layout.words) as word:
                to = gpu.at(self.x, number * self.x_registers + (eight * layout.words + word) * 4)
                place = self.step(turn) * layout.step + layout.place(word, self.t)
                operands.read_vector_word(product, to, vector, place)

    def multiply(self, number: int) -> None:
        tiles = self.shape.tiles
        low = T.alloc_buffer((4,), "uint32", scope="local")
        high = T.alloc_buffer((4,), "uint32", scope="local")
        matrix, first = self.matrices[number], number * self.x_registers
        with gpu.unrolled(tiles) as tile, gpu.unrolled(self.layout.words) as word:
            matrix.word(tile * 2, word, low)
            matrix.word(tile * 2 + 1, word, high)
            for eight in range(self.eights):
                begin = first + (eight * self.layout.words + word) * 4
                operands.multiply(
                    str(self.product.x.dtype),
                    self.sums,
                    (eight * tiles + tile) * 4,
                    low,
                    high,
                    lambda pair, begin=begin: self.x[begin + pair],
                )


def _finish(
    product: MatrixProduct,
    shape: FewShape,
    first: Expression,
    warp: Expression,
    lane: Expression,
    sums: Expression,
    *,
    vectors: int,
) -> None:
    """Adds up what the warps have, and stores the results."""
    tiles, warps = shape.tiles, shape.warps
    rows = ROWS * tiles
    size = vectors * rows
    shared = T.alloc_buffer((warps * size,), "float32", scope="shared")
    with gpu.unrolled(tiles) as tile:
        for number in range(vectors // MOST * 4):
            eight, place = divmod(number, 4)
            column, row = eight * MOST + lane % 4 * 2 + place % 2, tile * ROWS + place // 2 * 8 + lane // 4
            store(shared, sums[(eight * tiles + tile) * 4 + place], warp * size + column * rows + row)
    gpu.synchronize()
    made = vectors * results.count(product, rows)
    for begin in range(0, made, warps * WARP):
        _store(product, warps, rows, first, begin + warp * WARP + lane, shared, size)


def _store(
    product: MatrixProduct, warps: int, rows: int, first: Expression, number: Expression, shared: Buffer, size: int
) -> None:
    """What the warps have for one of the results, vector by vector, in all."""
    count = results.count(product, rows)
    column, result = tirx.floordiv(number, count), tirx.floormod(number, count)
    within = tirx.all(column < product.rows, number < size // rows * count)
    if product.n % rows:
        within = tirx.all(within, first + results.place_of(product, result) < product.n)

    def total(place: Expression) -> Expression:
        return gpu.total(warps, lambda other: shared[other * size + column * rows + place])

    with gpu.when(within):
        results.store_result(product, total, row=column, first=first, number=result)
