"""A matrix times many vectors, by tensor cores: prefill and large batches.

A block computes 128 rows for 64 vectors; a warp 32 rows for 32 of them. A step's places of the vectors are laid out in
shared memory as tensor cores take them, in two turns: while one is used the other is filled. Of the matrix every thread
reads what it uses itself, a step ahead.
"""

from __future__ import annotations

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels import operands, results
from mlcbuild.compiler.kernels.building import Buffer, Expression, store
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct

ROWS = 128
VECTORS = 64
_WARP = 32
_WARPS = 8
_THREADS = _WARP * _WARPS
_TILES = 2  # of 16 rows, of a warp
_COLUMNS = 4  # of 8 vectors, of a warp
_RESULT_STRIDE = ROWS + 4  # threads that store results together then meet no bank of shared memory twice


def multiply_many(product: MatrixProduct) -> None:
    """The kernel's body, for any number of vectors."""
    with (
        T.thread_binding(0, tirx.ceildiv(product.rows, VECTORS), thread="blockIdx.y") as column,
        T.thread_binding(0, -(-product.n // ROWS), thread="blockIdx.x") as block,
        T.thread_binding(0, _WARPS, thread="threadIdx.y") as warp,
        T.thread_binding(0, _WARP, thread="threadIdx.x") as lane,
    ):
        _Thread(product, block * ROWS, column * VECTORS, warp, lane).run()


class _Thread:
    def __init__(
        self, product: MatrixProduct, first: Expression, first_vector: Expression, warp: Expression, lane: Expression
    ) -> None:
        self.product = product
        self.first = first
        self.first_vector = first_vector
        self.g, self.t = T.bind(lane // 4), T.bind(lane % 4)
        self.warp_row = T.bind(warp // 2 * (_TILES * 16))
        self.warp_vector = T.bind(warp % 2 * (_COLUMNS * 8))
        self.thread = T.bind(warp * _WARP + lane)
        self.layout = operands.layout(product)
        self.chunks = self.layout.step // 8  # of eight places, of a vector in a step
        self.copies_each = VECTORS * self.chunks // _THREADS  # chunks that a thread lays out
        self.buffer = VECTORS * self.layout.step // 2  # registers of a step's vectors
        self.shared = T.alloc_buffer((max(2 * self.buffer, VECTORS * _RESULT_STRIDE),), "float32", scope="shared")
        self.sums = T.alloc_buffer((_TILES * _COLUMNS * 4,), "float32", scope="local")
        self.copies = T.alloc_buffer((self.copies_each * 4,), "uint32", scope="local")
        self.matrix = operands.rows(product, _TILES * 2)
        self.ahead = operands.rows(product, _TILES * 2)

    def run(self) -> None:
        steps = self.layout.steps(self.product.k)
        gpu.fill(self.sums, T.float32(0), _TILES * _COLUMNS * 4)
        self.read_vectors(T.int32(0))
        self.read_matrix(self.matrix, T.int32(0))
        self.lay_out(T.int32(0))
        with T.serial(0, steps) as step:
            turn = T.bind(step % 2)
            gpu.synchronize()
            with gpu.when(step + 1 < steps):
                self.read_vectors(step + 1)
                self.read_matrix(self.ahead, step + 1)
            self.multiply(self.matrix, turn)
            with gpu.when(step + 1 < steps):
                self.lay_out(1 - turn)
                self.matrix.take(self.ahead)
        self.finish()

    def read_matrix(self, to: operands.Rows, step: Expression) -> None:
        whole = self.product.n % ROWS == 0
        with gpu.unrolled(_TILES * 2) as slot:
            row = self.first + self.warp_row + slot * 8 + self.g
            row = operands.limited(row, self.product.n, whole=whole)
            to.read(slot, results.matrix_row(self.product, row), step, self.t)

    def chunk(self, copy: Expression) -> tuple[Expression, Expression, Expression]:
        """Of a chunk that this thread lays out: its vector, the eight places in the step, and where it lies."""
        number = self.thread + copy * _THREADS
        vector, place = tirx.floordiv(number, self.chunks), tirx.floormod(number, self.chunks)
        word, t = tirx.floordiv(place, 4), tirx.floormod(place, 4)
        return vector, self.layout.place(word, t), self.position(vector, word, t)

    def position(self, vector: Expression, word: Expression, t: Expression) -> Expression:
        """The register where a vector's word begins. The four threads t of a word are neighbours, and those of the next
        vector lie in the other banks, if words come in pairs."""
        place = word * 4 + t
        if self.layout.words % 2 == 0:
            place = tirx.bitwise_xor(place, tirx.bitwise_and(vector, 1) * 4)
        return vector * (self.layout.step // 2) + place * 4

    def read_vectors(self, step: Expression) -> None:
        gpu.fill(self.copies, T.uint32(0), self.copies_each * 4)
        with gpu.unrolled(self.copies_each) as copy:
            vector, place, _ = self.chunk(copy)
            k = step * self.layout.step + place
            with gpu.when(self.first_vector + vector < self.product.rows):
                to = gpu.at(self.copies, copy * 4)
                operands.read_vector_word(self.product, to, self.first_vector + vector, k)

    def lay_out(self, turn: Expression) -> None:
        with gpu.unrolled(self.copies_each) as copy:
            _, _, position = self.chunk(copy)
            gpu.store_shared16(gpu.at(self.shared, turn * self.buffer + position), gpu.at(self.copies, copy * 4))

    def multiply(self, matrix: operands.Rows, turn: Expression) -> None:
        low = [T.alloc_buffer((4,), "uint32", scope="local") for _ in range(_TILES)]
        high = [T.alloc_buffer((4,), "uint32", scope="local") for _ in range(_TILES)]
        x: Buffer = T.alloc_buffer((4,), "uint32", scope="local")
        with gpu.unrolled(self.layout.words) as word:
            for tile in range(_TILES):
                matrix.word(tile * 2, word, low[tile])
                matrix.word(tile * 2 + 1, word, high[tile])
            with gpu.unrolled(_COLUMNS) as column:
                vector = self.warp_vector + column * 8 + self.g
                position = turn * self.buffer + self.position(vector, word, self.t)
                gpu.load_shared16(gpu.at(x, 0), gpu.at(self.shared, position))
                for tile in range(_TILES):
                    operands.multiply(
                        str(self.product.x.dtype),
                        self.sums,
                        (tile * _COLUMNS + column) * 4,
                        low[tile],
                        high[tile],
                        lambda pair: x[pair],
                    )

    def finish(self) -> None:
        """Turns the results around in shared memory, so that neighbouring threads store neighbouring numbers."""
        gpu.synchronize()
        with gpu.unrolled(_TILES) as tile, gpu.unrolled(_COLUMNS) as column:
            for place in range(4):
                vector = self.warp_vector + column * 8 + self.t * 2 + place % 2
                row = self.warp_row + tile * 16 + place // 2 * 8 + self.g
                store(self.shared, self.sums[(tile * _COLUMNS + column) * 4 + place], vector * _RESULT_STRIDE + row)
        gpu.synchronize()
        count = results.count(self.product, ROWS)
        with T.serial(0, VECTORS * count // _THREADS) as turn:
            place = turn * _THREADS + self.thread
            vector, number = tirx.floordiv(place, count), tirx.floormod(place, count)
            within = self.first_vector + vector < self.product.rows
            if self.product.n % ROWS:
                within = tirx.all(within, self.first + results.place_of(self.product, number) < self.product.n)
            with gpu.when(within):
                results.store_result(
                    self.product,
                    lambda row: T.bind(self.shared[vector * _RESULT_STRIDE + row]),
                    row=self.first_vector + vector,
                    first=self.first,
                    number=number,
                )
