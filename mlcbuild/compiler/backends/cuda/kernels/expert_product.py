"""Rows times the matrices of their experts, on tensor cores.

A block has a few rows next to each other, and some tiles of the matrices' rows. It goes over the runs of rows that have
one expert, and multiplies each as `few_vectors` does. So the blocks of the grid are known before anybody is chosen,
and an expert that nobody chose is not read. Up to as many rows as there are experts, a row has a block of its own:
then most rows have an expert of their own, and more blocks read memory at once.
"""

from __future__ import annotations

import dataclasses

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda import architectures
from mlcbuild.compiler.backends.cuda.kernels import few_vectors, operands
from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.kernels.building import Buffer, Expression, replace_body, statement
from mlcbuild.compiler.kernels.expert_product import ExpertProduct, match_expert_product

_LONG = 1 << 13  # rows of a matrix from which on a block has two tiles of them


def schedule_expert_product(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """None unless `func` is a product of rows of halves with their experts' matrices, of halves or packed integers, for
    an architecture whose tensor cores multiply 16 × 8 × 16 halves."""
    product = match_expert_product(func)
    if product is None or not operands.fits(product.run(tirx.const(0, "int64"), 1)):
        return None
    if not architectures.has_mma_m16n8k16(str(target.attrs["arch"])):
        return None
    return replace_body(product.func, statement(lambda: _choose(product)))


def _choose(product: ExpertProduct) -> None:
    rows, experts = product.rows, int(product.words_and_scales[0].shape[0])
    if isinstance(rows, int):
        _launch(product, 1 if rows <= experts else few_vectors.MOST)
        return
    with T.If(rows <= experts):
        with T.Then():
            _launch(product, 1)
        with T.Else():
            _launch(product, few_vectors.MOST)


def _launch(product: ExpertProduct, each: int) -> None:
    """A launch whose blocks have `each` rows."""
    tiles = 2 if product.n >= _LONG else 1
    height = few_vectors.ROWS * tiles
    with (
        T.thread_binding(0, tirx.floordiv(product.rows + each - 1, each), thread="blockIdx.y") as part,
        T.thread_binding(0, -(-product.n // height), thread="blockIdx.x") as block,
        T.thread_binding(0, few_vectors.FewShape.warps, thread="threadIdx.y") as warp,
        T.thread_binding(0, few_vectors.WARP, thread="threadIdx.x") as lane,
    ):
        if each == 1:
            _run(product, part, 1, tiles, block * height, warp, lane)
            return
        with T.serial(0, each) as place:
            row = T.bind(part * each + place)
            before = product.expert(_within(product, tirx.max(row - 1, 0)))
            begins = tirx.any(place == 0, product.expert(_within(product, row)) != before)
            with gpu.when(tirx.all(row < product.rows, begins)):
                length = _length(product, row, each - place, each)
                _run(product, row, length[0], tiles, block * height, warp, lane)
                gpu.synchronize()  # the next run writes to the same shared memory


def _length(product: ExpertProduct, row: Expression, most: Expression, limit: int) -> Buffer:
    """How many rows, from `row` on and at most `most`, have one expert: element 0 of a buffer."""
    length = T.alloc_buffer((1,), "int32", scope="local")
    T.buffer_store(length, T.int32(1), [0])
    with T.serial(1, limit) as more:
        same = product.expert(_within(product, row + more)) == product.expert(row)
        with gpu.when(tirx.all(length[0] == more, more < most, row + more < product.rows, same)):
            T.buffer_store(length, length[0] + 1, [0])
    return length


def _within(product: ExpertProduct, row: Expression) -> Expression:
    return tirx.min(row, product.rows - 1)


def _run(
    product: ExpertProduct,
    row: Expression,
    length: int | Expression,
    tiles: int,
    first: Expression,
    warp: Expression,
    lane: Expression,
) -> None:
    """A block's part of the product of `length` rows from `row` on. A thread reads one of these rows alone."""
    own = T.bind(product.source(row + tirx.min(lane // 4, length - 1)))
    run = dataclasses.replace(product.run(row, length), source=own)
    shape = few_vectors.FewShape(tiles=tiles)
    few_vectors.multiply_tiles(run, shape, first, warp, lane)
