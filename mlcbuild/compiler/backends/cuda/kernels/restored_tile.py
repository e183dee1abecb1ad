"""A tile by warpgroups of a matrix that is neither stored as halves nor in integers of four bits by rows: its numbers
are restored into shared memory, a step while the one before is multiplied (`restored_tile_text`)."""

from __future__ import annotations

import dataclasses

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels import operands, results
from mlcbuild.compiler.backends.cuda.kernels.element_rows import ElementRows
from mlcbuild.compiler.backends.cuda.kernels.tile_product_text import TileText, call
from mlcbuild.compiler.kernels.building import Buffer, Expression
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct

_THREADS_OF_ROW = 2


class RestoredTile:
    """A thread's part of multiplying a matrix that is restored step by step. It restores half of a row's places."""

    def __init__(
        self,
        product: MatrixProduct,
        text: TileText,
        sums: Buffer,
        shared: Buffer,
        first: Expression,
        first_vector: Expression,
        thread: Expression,
        first_step: Expression,
        steps: int,
    ) -> None:
        self.product = product
        self.text = text
        self.sums = sums
        self.shared = shared
        self.first_vector = first_vector
        self.first_step = first_step
        self.steps = steps
        self.layout = dataclasses.replace(operands.layout(product), threads=_THREADS_OF_ROW)
        self.place = T.bind(tirx.floordiv(thread, self.layout.threads))
        self.half = T.bind(tirx.floormod(thread, self.layout.threads))
        row = results.matrix_row(product, first + self.place)
        self.row = row if product.n % text.rows == 0 else tirx.min(row, product.n - 1)
        self.rows = ElementRows(product, self.layout, 1)

    def run(self) -> None:
        self.read(T.int32(0))
        for step in range(self.text.stages - 2):
            self.copy(T.int32(step))
        with T.serial(0, self.steps) as step:
            self.restore(step)
            with gpu.when(step + 1 < self.steps):
                self.read(step + 1)
            call(self.text, "meet")
            self.copy(step + self.text.stages - 2)
            call(self.text, "multiply_step", gpu.at(self.sums, 0), gpu.at(self.shared, 0), step)
            call(self.text, "wait_for_last_but_one")
        call(self.text, "end_steps", gpu.at(self.sums, 0))

    def read(self, step: Expression) -> None:
        self.rows.read(0, self.row, self.first_step + step, self.half)

    def copy(self, step: Expression) -> None:
        left = tirx.Cast("int32", self.product.rows - self.first_vector)
        vectors = T.address_of(self.product.x_at(self.first_vector, T.int32(0)))
        places = (self.first_step, step, T.int32(self.steps), T.int32(self.product.k))
        call(self.text, "copy_vectors", gpu.at(self.shared, 0), vectors, left, *places)

    def restore(self, step: Expression) -> None:
        registers = T.alloc_buffer((4,), "uint32", scope="local")
        with gpu.unrolled(self.layout.words) as word:
            self.rows.word(0, word, registers)
            chunk = tirx.floordiv(self.layout.place(word, self.half), 8)
            call(self.text, "keep_word", gpu.at(self.shared, 0), gpu.at(registers, 0), step, self.place, chunk)
