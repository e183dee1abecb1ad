"""Rows times the matrices of their experts.

Threads share the rows of the matrices, in tiles, and each goes over all runs of rows that have one expert. The rows of
a short run are multiplied as `gemv` does it, others as `matmul` does: a tile is restored once for the run. So a tile is
read from memory once, where rows are sorted by expert, and an expert that nobody chose is not read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels import gemv, matmul
from mlcbuild.compiler.kernels.building import (
    LANES,
    WORTH_THREADS,
    Buffer,
    Expression,
    float32,
    lanes,
    loop,
    statement,
    store,
    with_body,
)
from mlcbuild.compiler.kernels.expert_product import ExpertProduct, ExpertRun, match_expert_product
from mlcbuild.compiler.kernels.matmul_pattern import PackedMatrix

_SEVERAL = 4  # rows from which on it pays to restore a tile for them


class _Row:
    """One row of a buffer, read as if it were alone."""

    def __init__(self, buffer: Buffer, row: Expression) -> None:
        self._buffer = buffer
        self._row = row

    def __getitem__(self, place: Expression) -> Expression:
        return self._buffer[self._row, place]


class _Rows:
    """The rows of x that a run is computed of, in float32, as `matmul` reads them."""

    def __init__(self, buffer: Buffer, run: ExpertRun) -> None:
        self._buffer = buffer
        self._run = run

    def __getitem__(self, place: tuple[Expression, Expression]) -> Expression:
        row, k = place
        return self._buffer[self._run.of.source(self._run.first + row), k]


def schedule_expert_product(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """None unless `func` is a product of rows with their experts' matrices, whose rows are whole vectors of eight."""
    del target
    product = match_expert_product(func)
    if product is None or product.k % LANES or not matmul.whole_words(product.matrix):
        return None
    return _Kernel(product).build()


class _Kernel:
    def __init__(self, product: ExpertProduct) -> None:
        self.product = product
        rows, k = product.rows, product.k
        self.begins = tirx.decl_buffer((rows + 1,), "int32", name="begins")
        self.count = tirx.decl_buffer((1,), "int32", name="count")
        self.scratch = [self.begins, self.count]
        self.x: Buffer | None = None
        if str(product.x.dtype) != "float32":
            self.x = self._buffer((product.x_rows, k), "x_float32")
        matrix = product.matrix
        self.blocks = gemv.blocks_of(matrix, k) if isinstance(matrix, PackedMatrix) else None
        if self.blocks is not None and isinstance(matrix, PackedMatrix):
            self.spread = self._buffer((product.x_rows, k), "spread")
            self.start = self._buffer((product.x_rows, k // matrix.per_word), "start")

    def _buffer(self, shape: tuple[Any, ...], name: str) -> Buffer:
        buffer = tirx.decl_buffer(shape, "float32", name=name)
        self.scratch.append(buffer)
        return buffer

    def build(self) -> tirx.PrimFunc:
        steps: list[Callable[[], None]] = [self._find_runs, self._prepare, self._multiply]
        return with_body(self.product.func, [statement(step) for step in steps], scratch=self.scratch)

    def _find_runs(self) -> None:
        """Where runs begin, and behind them the number of rows."""
        product, zero = self.product, T.int32(0)
        with T.sblock("find_runs"):
            T.reads(self._all(product.experts))
            T.writes(self._all(self.begins), self.count[0:1])
            store(self.count, zero, 0)
            with loop(product.rows) as row:
                before = product.expert(tirx.max(row - 1, tirx.const(0, row.ty.dtype)))
                with T.If(tirx.any(row == 0, product.expert(row) != before)), T.Then():
                    store(self.begins, row.astype("int32"), self.count[0])
                    store(self.count, self.count[0] + 1, 0)
            store(self.begins, T.Cast("int32", product.rows), self.count[0])

    def _prepare(self) -> None:
        """x in float32, and as `gemv` reads it."""
        product = self.product
        with loop(product.x_rows) as number, T.sblock("prepare"):
            row = T.axis.spatial(product.x_rows, number)
            T.reads(self._all(product.x))
            T.writes(*(self._all(buffer) for buffer in self.scratch[2:]))
            if self.x is not None:
                with loop(product.k // LANES) as step:
                    places = lanes(step * LANES, LANES)
                    store(self.x, float32(product.x_row(row, places), LANES), row, places)
            if self.blocks is not None and isinstance(product.matrix, PackedMatrix):
                for block in self.blocks:
                    gemv.spread_x(
                        product.matrix,
                        block,
                        lambda k: product.x_row(row, k),
                        lambda value, place: store(self.spread, value, row, place),
                        lambda value, place: store(self.start, value, row, place),
                    )

    def _multiply(self) -> None:
        product = self.product
        tile = matmul.largest_divisor(product.n, matmul.TILE)
        tiles = product.n // tile
        with loop(tiles, parallel=product.n * product.k >= WORTH_THREADS) as number, T.sblock("multiply"):
            first = T.axis.spatial(tiles, number) * tile
            buffers = (product.words_and_scales, [product.x, product.experts, *self.scratch])
            read = [buffer for group in buffers for buffer in group]
            T.reads(*(self._all(buffer) for buffer in read))
            T.writes(self._all(product.output))
            with loop(self.count[0]) as run:
                begin = T.bind(self.begins[run])
                length = T.bind(self.begins[run + 1] - begin)
                with T.If(length < _SEVERAL):
                    with T.Then(), loop(length) as row:
                        self._one(product.run(begin + row, 1), first, tile)
                    with T.Else():
                        self._several(product.run(begin, length), first, tile)

    def _one(self, run: ExpertRun, first: Expression, tile: int) -> None:
        matrix: Any = run.matrix
        if self.blocks is None:
            self._several(run, first, tile)
            return
        source = T.bind(run.of.source(run.first))
        with loop(tile) as row:
            sums = [
                gemv.row_sum(matrix, block, first + row, _Row(self.spread, source), _Row(self.start, source))
                for block in self.blocks
            ]
            total = sums[0]
            for other in sums[1:]:
                total = total + other
            store(run.output, T.Cast(str(run.output.dtype), total), *run.output_at(0, first + row))

    def _several(self, run: ExpertRun, first: Expression, tile: int) -> None:
        restored = matmul.restore(run, first, tile)
        matmul.multiply_tile(run, None if self.x is None else _Rows(self.x, run), restored)

    @staticmethod
    def _all(buffer: Buffer) -> Any:
        return buffer[tuple(slice(0, size) for size in buffer.shape)]
