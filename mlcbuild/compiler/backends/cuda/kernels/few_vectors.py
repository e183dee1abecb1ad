"""A matrix times up to eight vectors, or sixteen: as fast as times one, or nearly, since memory's speed is what counts.

A block has a few tiles of 16 rows; its warps share the places of the rows and add up what they have at the end. Vectors
are the columns of what the tensor core computes, eight at a time, so integers are multiplied by their scales before.
"""

from __future__ import annotations

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels import operands
from mlcbuild.compiler.backends.cuda.kernels.results import store_result
from mlcbuild.compiler.kernels.building import Buffer, Expression, store
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct

MOST = 8  # vectors that a tensor core takes at a time
SIZES = (MOST, 2 * MOST)  # vectors of a kernel
ROWS = 16
WARP = 32
WARPS = 8


def multiply_few(product: MatrixProduct, *, vectors: int = MOST) -> None:
    """The kernel's body, for at most `vectors` vectors, one of `SIZES`."""
    # More vectors are read again by fewer blocks: what was fastest on an H200 (docs/cuda.md).
    tiles = 2 * vectors // MOST if product.n >= 1 << 13 else 1
    with (
        T.thread_binding(0, -(-product.n // (ROWS * tiles)), thread="blockIdx.x") as block,
        T.thread_binding(0, WARPS, thread="threadIdx.y") as warp,
        T.thread_binding(0, WARP, thread="threadIdx.x") as lane,
    ):
        multiply_tiles(product, tiles, block * (ROWS * tiles), warp, lane, vectors=vectors)


def multiply_tiles(
    product: MatrixProduct,
    tiles: int,
    first: Expression,
    warp: Expression,
    lane: Expression,
    *,
    vectors: int = MOST,
) -> None:
    """What a thread does for a block's tiles of the matrix, from its row `first` on, with at most `vectors` vectors."""
    eights = vectors // MOST
    g, t = T.bind(lane // 4), T.bind(lane % 4)
    sums = T.alloc_buffer((eights * tiles * 4,), "float32", scope="local")
    gpu.fill(sums, T.float32(0), eights * tiles * 4)
    matrix = operands.MatrixRows(product, tiles * 2)
    low = T.alloc_buffer((4,), "uint32", scope="local")
    high = T.alloc_buffer((4,), "uint32", scope="local")
    x = T.alloc_buffer((eights * operands.WORDS * 4,), "uint32", scope="local")
    steps = operands.steps(product)
    with T.serial(0, -(-steps // WARPS)) as turn:
        step = turn * WARPS + warp
        with gpu.when(step < steps):
            group = T.bind(step * 4 + t)
            with gpu.unrolled(tiles * 2) as slot:
                there = operands.limited(first + slot * 8 + g, product.n, whole=product.n % (ROWS * tiles) == 0)
                matrix.read(slot, there, group)
            gpu.fill(x, T.uint32(0), eights * operands.WORDS * 4)
            for eight in range(eights):
                vector = eight * MOST + g
                with (
                    gpu.when(tirx.all(vector < product.rows, group < product.k // operands.WIDTH)),
                    gpu.unrolled(operands.WORDS) as word,
                ):
                    to = gpu.at(x, (eight * operands.WORDS + word) * 4)
                    operands.read_vector_word(product, to, vector, group * operands.WIDTH + word * 8)
            with gpu.unrolled(tiles) as tile, gpu.unrolled(operands.WORDS) as word:
                matrix.word(tile * 2, word, low)
                matrix.word(tile * 2 + 1, word, high)
                for eight in range(eights):
                    _multiply(sums, (eight * tiles + tile) * 4, low, high, x, (eight * operands.WORDS + word) * 4)
    _finish(product, tiles, first, warp, lane, sums, vectors=vectors)


def _multiply(sums: Buffer, place: Expression, low: Buffer, high: Buffer, x: Buffer, begin: Expression) -> None:
    operands.multiply(sums, place, low, high, lambda pair: x[begin + pair])


def _finish(
    product: MatrixProduct,
    tiles: int,
    first: Expression,
    warp: Expression,
    lane: Expression,
    sums: Expression,
    *,
    vectors: int,
) -> None:
    """Adds up what the warps have, and stores the results."""
    rows = ROWS * tiles
    size = vectors * rows
    shared = T.alloc_buffer((WARPS * size,), "float32", scope="shared")
    with gpu.unrolled(tiles) as tile:
        for number in range(vectors // MOST * 4):
            eight, place = divmod(number, 4)
            column, row = eight * MOST + lane % 4 * 2 + place % 2, tile * ROWS + place // 2 * 8 + lane // 4
            store(shared, sums[(eight * tiles + tile) * 4 + place], warp * size + column * rows + row)
    gpu.synchronize()
    for begin in range(0, size, WARPS * WARP):
        _store(product, rows, first, begin + warp * WARP + lane, shared, size)


def _store(product: MatrixProduct, rows: int, first: Expression, place: Expression, shared: Buffer, size: int) -> None:
    """What the warps have for one place of the results, vector by vector, in all."""
    column, row = tirx.floordiv(place, rows), tirx.floormod(place, rows)
    within = tirx.all(column < product.rows, place < size)
    if product.n % rows:
        within = tirx.all(within, first + row < product.n)
    with gpu.when(within):
        total = gpu.total(WARPS, lambda other: shared[other * size + place])
        store_result(product, total, row=column, n=first + row)
