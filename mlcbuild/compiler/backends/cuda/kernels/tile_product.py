"""A matrix times many vectors, by warpgroups (`tile_product_text`): for sm_90a.

A block computes 128 rows for the vectors of its tile. Where there are too few tiles for all multiprocessors, the blocks
of a cluster share the places of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda import architectures, clusters
from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels import operands, results, tile_product_text
from mlcbuild.compiler.backends.cuda.kernels.launching import WARP
from mlcbuild.compiler.backends.cuda.kernels.restored_tile import RestoredTile
from mlcbuild.compiler.backends.cuda.kernels.tile_product_text import Matrix, TileText, call
from mlcbuild.compiler.kernels.building import Expression, store
from mlcbuild.compiler.kernels.computed_matrix import ComputedMatrix
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct, PackedMatrix

ARCHITECTURE = "sm_90a"
_WARPGROUPS = 2
_ROWS = tile_product_text.TILE_ROWS * _WARPGROUPS
_THREADS = 128 * _WARPGROUPS
_TOGETHER = 4  # rows that a thread stores
_CLUSTERS = (1, 2, 4, 8)
_FEWEST_STEPS = 16
_SHARED_BYTES = 227 << 10  # that a block of them can have


@dataclass(frozen=True, slots=True, kw_only=True)
class TileShape:
    """How a product is shared out: vectors of a block, steps on their way, and blocks that share the places of a row.

    Raises ValueError for shapes that the kernel does not have: all threads store a share of the vectors.
    """

    vectors: int
    stages: int = 4
    cluster: int = 1

    def __post_init__(self) -> None:
        if self.vectors not in (64, 128, 256) or self.stages < 3 or self.cluster not in _CLUSTERS:
            raise ValueError(f"no shape of a tile: {self}")


def shapes(n: int, k: int) -> list[tuple[int | None, TileShape]]:
    """The shapes of a tile for n rows of k places, each with the most vectors that it is for; the last is for any
    number. What was fastest on an H200 for the products of Llama-3-8B, TinyLlama and SmolLM2 (docs/cuda.md)."""
    blocks = -(-n // _ROWS)
    steps = k // tile_product_text.STEP
    chosen: list[tuple[int | None, TileShape]] = [
        (64, TileShape(vectors=64, cluster=_cluster(blocks, steps, 2 * architectures.MULTIPROCESSORS)))
    ]
    # Two tiles of vectors where there are too few of rows for all multiprocessors.
    alone = _cluster(blocks, steps, architectures.MULTIPROCESSORS)
    cluster = _cluster(2 * blocks, steps, architectures.MULTIPROCESSORS)
    if 2 * blocks <= architectures.MULTIPROCESSORS and (cluster > 1 or alone == 1):
        chosen.append((128, TileShape(vectors=64, cluster=cluster)))
    for vectors in (128, 256):
        cluster = min(2, alone)
        most = vectors * max(1, architectures.MULTIPROCESSORS // (blocks * cluster))
        if most > (chosen[-1][0] or 0) and (cluster > 1 or vectors == 128):
            chosen.append((most, TileShape(vectors=vectors, cluster=cluster)))
    return [*chosen, (None, TileShape(vectors=256))]


def _cluster(blocks: int, steps: int, places: int) -> int:
    """Blocks that share the places of a row, as long as all are at work together and each has `_FEWEST_STEPS`."""
    return max(
        size
        for size in _CLUSTERS
        if size == 1 or (blocks * size <= places and steps % size == 0 and steps // size >= _FEWEST_STEPS)
    )


def fits(product: MatrixProduct) -> bool:
    """Whether the matrix has rows of whole steps, and vectors lie one behind the other."""
    if not operands.fits(product) or (_is_computed(product) and operands.layout(product).step % tile_product_text.STEP):
        return False
    axis = next((place for place, index in enumerate(product.x_indices) if index is None), len(product.x_indices))
    between: list[Any] = list(product.x.shape)[axis + 1 : -1]
    one_behind_the_other = all(isinstance(size, tirx.IntImm) and int(size) == 1 for size in between)
    return product.k % tile_product_text.STEP == 0 and product.n % _TOGETHER == 0 and one_behind_the_other


def can_have(product: MatrixProduct, shape: TileShape) -> bool:
    """Whether a product that fits can be computed by a tile: by the shared memory of a block, and whole steps for each
    block of a cluster, at least as many as are on their way."""
    steps = product.k // tile_product_text.STEP
    enough = shape.cluster == 1 or steps // shape.cluster >= shape.stages
    return _text(product, shape).shared_bytes <= _SHARED_BYTES and steps % shape.cluster == 0 and enough


def _text(product: MatrixProduct, shape: TileShape) -> TileText:
    packed = isinstance(product.matrix, PackedMatrix)
    return TileText(
        matrix=Matrix.PACKED if packed else Matrix.RESTORED if _is_computed(product) else Matrix.HALVES,
        dtype=str(product.x.dtype),
        vectors=shape.vectors,
        warpgroups=_WARPGROUPS,
        stages=shape.stages,
    )


def _is_computed(product: MatrixProduct) -> bool:
    return isinstance(product.matrix, ComputedMatrix)


def multiply_tiles(product: MatrixProduct, shape: TileShape) -> None:
    """The kernel's body, for any number of vectors."""
    with (
        T.thread_binding(0, shape.cluster, thread="blockIdx.z") as rank,
        T.thread_binding(0, -(-product.n // _ROWS), thread="blockIdx.y") as block,
        T.thread_binding(0, tirx.ceildiv(product.rows, shape.vectors), thread="blockIdx.x") as column,
        T.thread_binding(0, _THREADS // WARP, thread="threadIdx.y") as warp,
        T.thread_binding(0, WARP, thread="threadIdx.x") as lane,
    ):
        _block(product, shape, rank, block, column * shape.vectors, warp * WARP + lane)


def _block(
    product: MatrixProduct,
    shape: TileShape,
    rank: Expression,
    block: Expression,
    first_vector: Expression,
    thread: Expression,
) -> None:
    first = block * _ROWS
    text = _text(product, shape)
    shared = T.alloc_buffer((text.shared_bytes,), "uint8", scope="shared.dyn")
    sums = T.alloc_buffer((shape.vectors // 2,), "float32", scope="local")
    gpu.fill(sums, T.float32(0), shape.vectors // 2)
    # TVM makes a buffer as large as it sees it used. No step's copy reaches the last byte.
    store(shared, T.uint8(0), text.shared_bytes - 1)
    steps = product.k // tile_product_text.STEP // shape.cluster
    if text.matrix is Matrix.RESTORED:
        RestoredTile(product, text, sums, shared, first, first_vector, thread, rank * steps, steps).run()
    else:
        matrix: Any = product.matrix
        packed = text.matrix is Matrix.PACKED
        stored = (matrix.words, matrix.scales) if packed else (matrix,)
        call(
            text,
            "multiply_tile",
            gpu.at(sums, 0),
            gpu.at(shared, 0),
            T.address_of(product.x_at(first_vector, T.int32(0))),
            *(gpu.at(each, results.count(product, _ROWS) * block, 0) for each in stored),
            tirx.Cast("int32", product.rows - first_vector),
            product.n - first,
            T.int32(product.n // 2 if results.is_gated(product) else 0),
            rank * steps,
            T.int32(steps),
            T.int32(product.k),
            *((T.int32(int(matrix.offset)),) if packed else ()),
        )
    call(text, "lay_sums_out", gpu.at(sums, 0), gpu.at(shared, 0), T.int32(shape.cluster))
    own, made = shape.vectors // shape.cluster, results.count(product, _ROWS)
    totals = [T.alloc_buffer((_TOGETHER,), "float32", scope="local") for _ in range(_ROWS // made)]
    stores = own * made // _TOGETHER
    with T.serial(0, -(-stores // _THREADS)) as turn:
        place = T.bind(turn * _THREADS + thread)
        vector = rank * own + tirx.floordiv(place, made // _TOGETHER)
        number = tirx.floormod(place, made // _TOGETHER) * _TOGETHER
        row = results.place_of(product, number)
        within = first_vector + vector < product.rows
        if stores % _THREADS:
            within = tirx.all(place < stores, within)
        if product.n % _ROWS:
            within = tirx.all(within, first + row < product.n)
        with gpu.when(within):
            for eight, four in enumerate(totals):
                place_of_four = row + eight * results.EIGHT
                call(text, "total", gpu.at(four, 0), gpu.at(shared, 0), vector, place_of_four, T.int32(shape.cluster))
            results.store_neighbours(product, totals, _TOGETHER, row=first_vector + vector, first=first, number=number)
    if shape.cluster > 1:
        name, leaving = clusters.leave(shape.cluster)
        T.evaluate(T.cuda.func_call(name, source_code=leaving))
