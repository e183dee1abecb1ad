"""A matrix times up to eight vectors: as fast as times one, since memory's speed is what counts.

A block has a few tiles of 16 rows; its warps share the places of the rows and add up what they have at the end. Vectors
are the columns of what the tensor core computes, so integers are multiplied by their scales before.
"""

from __future__ import annotations

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels import operands
from mlcbuild.compiler.backends.cuda.kernels.results import store_result
from mlcbuild.compiler.kernels.building import Expression, store
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct

MOST = 8
ROWS = 16
WARP = 32
WARPS = 8


def multiply_few(product: MatrixProduct) -> None:
    """The kernel's body, for at most `MOST` vectors."""
    tiles = 2 if product.n >= 1 << 13 else 1
    with (
        T.thread_binding(0, -(-product.n // (ROWS * tiles)), thread="blockIdx.x") as block,
        T.thread_binding(0, WARPS, thread="threadIdx.y") as warp,
        T.thread_binding(0, WARP, thread="threadIdx.x") as lane,
    ):
        multiply_tiles(product, tiles, block * (ROWS * tiles), warp, lane)


def multiply_tiles(product: MatrixProduct, tiles: int, first: Expression, warp: Expression, lane: Expression) -> None:
    """What a thread does for a block's tiles of the matrix, from its row `first` on, with at most `MOST` vectors."""
    g, t = T.bind(lane // 4), T.bind(lane % 4)
    sums = T.alloc_buffer((tiles * 4,), "float32", scope="local")
    gpu.fill(sums, T.float32(0), tiles * 4)
    matrix = operands.MatrixRows(product, tiles * 2)
    low = T.alloc_buffer((4,), "uint32", scope="local")
    high = T.alloc_buffer((4,), "uint32", scope="local")
    x = T.alloc_buffer((operands.WORDS * 4,), "uint32", scope="local")
    steps = operands.steps(product)
    with T.serial(0, -(-steps // WARPS)) as turn:
        step = turn * WARPS + warp
        with gpu.when(step < steps):
            group = T.bind(step * 4 + t)
            with gpu.unrolled(tiles * 2) as slot:
                there = operands.limited(first + slot * 8 + g, product.n, whole=product.n % (ROWS * tiles) == 0)
                matrix.read(slot, there, group)
            gpu.fill(x, T.uint32(0), operands.WORDS * 4)
            with (
                gpu.when(tirx.all(g < product.rows, group < product.k // operands.WIDTH)),
                gpu.unrolled(operands.WORDS) as word,
            ):
                operands.read_vector_word(product, gpu.at(x, word * 4), g, group * operands.WIDTH + word * 8)
            with gpu.unrolled(tiles) as tile, gpu.unrolled(operands.WORDS) as word:
                matrix.word(tile * 2, word, low)
                matrix.word(tile * 2 + 1, word, high)
                operands.multiply(sums, tile * 4, low, high, lambda pair: x[word * 4 + pair])
    _finish(product, tiles, first, warp, lane, sums)


def _finish(
    product: MatrixProduct, tiles: int, first: Expression, warp: Expression, lane: Expression, sums: Expression
) -> None:
    """Adds up what the warps have, and stores the results."""
    rows = ROWS * tiles
    size = MOST * rows
    shared = T.alloc_buffer((WARPS * size,), "float32", scope="shared")
    with gpu.unrolled(tiles) as tile:
        for place in range(4):
            column, row = lane % 4 * 2 + place % 2, tile * ROWS + place // 2 * 8 + lane // 4
            store(shared, sums[tile * 4 + place], warp * size + column * rows + row)
    gpu.synchronize()
    place = warp * WARP + lane
    column, row = tirx.floordiv(place, rows), tirx.floormod(place, rows)
    within = tirx.all(column < product.rows, place < size)
    if product.n % rows:
        within = tirx.all(within, first + row < product.n)
    with gpu.when(within):
        total = gpu.total(WARPS, lambda other: shared[other * size + place])
        store_result(product, total, row=column, n=first + row)
