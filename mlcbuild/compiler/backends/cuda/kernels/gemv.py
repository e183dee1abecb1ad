"""A packed matrix of four-bit integers times one vector: what a token's decoding spends its time on. What is said of
halves holds for bfloat16.

The speed is that of reading the matrix, if enough of it is under way at any time and little is done for each weight. A
warp takes 16 rows and 256 places of them at a time, in eight groups of 32 that have a scale each. A thread reads whole
groups, 16 bytes each; the integers become halves in pairs, with their offset off, and the tensor core multiplies them
by the vector and sums in float32. Which thread's place is which place of a row does not matter as long as the vector is
laid out the same way. The tensor core would add up what four threads hold, which are different groups; but of the eight
columns that it computes, one vector needs one. So a column is given to each group: the vector is zero there for all
other groups, and what comes out are the sums of the groups, which then are multiplied by their scales in float32.

The warps of a block share the places of its rows, and add up what they have at the end.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda import architectures, dependent_launch
from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels import l2_prefetch, operands, results
from mlcbuild.compiler.kernels.building import Buffer, Expression, replace_body, statement, store
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct, PackedMatrix, match_matrix_product
from mlcbuild.compiler.kernels.shapes import ShapedRule

ROWS = 16  # of a tile: what the tensor core takes
GROUP = 32
GROUPS = 8  # of a step along a row: the columns of the tensor core's result
_STEP = GROUP * GROUPS
_WARP = 32
_WORDS_PER_GROUP = GROUP // 8


@dataclass(frozen=True, kw_only=True)
class GemvShape:
    """How the work is shared: `warps` of a block, `tiles` of 16 rows for which a part of the vector is used, and
    `ahead`, the number of steps whose words are asked for before the first is used."""

    warps: int = 8
    tiles: int = 1
    ahead: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.warps <= 32 or not 1 <= self.tiles <= 2 * self.warps or self.ahead < 1:
            raise ValueError(f"no way to share the work: {self}")


@dataclass(frozen=True, kw_only=True)
class _Matched:
    """A product that fits, and whether its kernel may begin before those before it have ended."""

    product: MatrixProduct
    early: bool


def _match(func: tirx.PrimFunc, target: tvm.target.Target) -> _Matched | None:
    """None unless `func` is a matrix of four-bit integers in groups of 32 times one vector of halves, with at most
    element-wise blocks after it, for an architecture whose tensor cores multiply 16 × 8 × 16 halves."""
    product = match_matrix_product(func, gated=True)
    architecture = str(target.attrs["arch"])
    if (
        product is None
        or product.rows != 1
        or not operands.fits_one_vector(product)
        or not architectures.has_mma_m16n8k16(architecture)
    ):
        return None
    return _Matched(product=product, early=dependent_launch.begins_early(architecture))


def _build(matched: _Matched, shape: GemvShape) -> tirx.PrimFunc:
    product = matched.product
    return replace_body(product.func, statement(lambda: multiply_one(product, shape, early=matched.early)))


def shape_for(product: MatrixProduct) -> GemvShape:
    """Warps that each have some steps, more where rows are long, fewer where there are many: of up to 30 shapes,
    measured on an H200 over ten matrices of Llama-3-8B and TinyLlama, the fastest or within 11 % of it for each."""
    warps = 4 if product.n >= 1 << 13 else 16 if product.k > 1 << 13 else 8
    return GemvShape(warps=max(1, min(warps, -(-product.k // _STEP))), tiles=1, ahead=1)


def multiply_one(product: MatrixProduct, shape: GemvShape, *, early: bool = False) -> None:
    """The kernel's body. With `early` the first words of the matrix, which no kernel before this one has made, are
    asked for before the kernels that make the vector have ended."""
    rows = ROWS * shape.tiles
    with (
        T.thread_binding(0, -(-product.n // rows), thread="blockIdx.x") as block,
        T.thread_binding(0, shape.warps, thread="threadIdx.y") as warp,
        T.thread_binding(0, _WARP, thread="threadIdx.x") as lane,
    ):
        _Block(product, shape, early=early, block=block, warp=warp, lane=lane).run()


class _Block:
    """What one thread does. `row` and `column` are its places in what the tensor core takes and gives: g and t."""

    def __init__(
        self,
        product: MatrixProduct,
        shape: GemvShape,
        *,
        early: bool,
        block: Expression,
        warp: Expression,
        lane: Expression,
    ) -> None:
        self.product = product
        self.early = early
        self.shape = shape
        self.warp = warp
        self.lane = lane
        self.block = block
        self.first = block * (ROWS * shape.tiles)
        self.row = T.bind(lane // 4)
        self.column = T.bind(lane % 4)
        self.steps = -(-product.k // _STEP)
        matrix = product.matrix
        assert isinstance(matrix, PackedMatrix)
        self.matrix = matrix

    def run(self) -> None:
        shape = self.shape
        sums = T.alloc_buffer((shape.tiles * 2,), "float32", scope="local")
        gpu.fill(sums, T.float32(0), shape.tiles * 2)
        per_warp = -(-self.steps // shape.warps)
        ahead = min(shape.ahead, per_warp)
        words = T.alloc_buffer((ahead * shape.tiles * 16,), "uint32", scope="local")
        scales = T.alloc_buffer((ahead * shape.tiles * 2,), "uint32", scope="local")

        def step(turn: Expression, number: Expression) -> Expression:
            return (turn * ahead + number) * shape.warps + self.warp

        with gpu.unrolled(ahead) as number:
            self.read(step(0, number), words, scales, number)
        if self.early:
            gpu.wait_for_inputs()
        turns = -(-per_warp // ahead)
        with T.serial(0, turns) as turn:
            with gpu.unrolled(ahead) as number:
                self.multiply(step(turn, number), words, scales, number, sums)
            if turns > 1:
                with gpu.when(turn + 1 < turns), gpu.unrolled(ahead) as number:
                    self.read(step(turn + 1, number), words, scales, number)
        if self.early:
            gpu.let_next_begin()
        l2_prefetch.request_following(
            self.product.func,
            block=self.block,
            blocks=-(-self.product.n // (ROWS * shape.tiles)),
            thread=self.warp * _WARP + self.lane,
        )
        self.finish(sums)

    def whole_steps(self) -> bool:
        """Whether every warp takes as many steps, and every step has all its groups."""
        per_warp = -(-self.steps // self.shape.warps)
        ahead = min(self.shape.ahead, per_warp)
        return self.product.k % _STEP == 0 and self.steps % (self.shape.warps * ahead) == 0

    def read(self, step: Expression, words: Buffer, scales: Buffer, number: Expression) -> None:
        """Asks for the words and scales of a step, for all tiles."""
        slots = self.shape.tiles * 2
        with gpu.unrolled(slots) as slot:
            row = self.first + slot * 8 + self.row
            if self.product.n % (ROWS * self.shape.tiles):
                row = T.min(row, self.product.n - 1)
            row = results.matrix_row(self.product, row)
            place = number * slots + slot
            with gpu.unrolled(2) as part:
                group = step * GROUPS + part * 4 + self.column
                with self.where_there_is(group):
                    to = gpu.at(words, (place * 2 + part) * _WORDS_PER_GROUP)
                    gpu.load_once(to, gpu.at(self.matrix.words, row, group * _WORDS_PER_GROUP))
            group = step * GROUPS + 2 * self.column
            if not self.whole_steps():
                store(scales, T.uint32(0), place)
            with self.where_there_is(group):
                gpu.load_constant4(gpu.at(scales, place), gpu.at(self.matrix.scales, row, group))

    def where_there_is(self, group: Expression) -> AbstractContextManager[None]:
        """A condition on statements, where the row may end before the step does."""
        return nullcontext() if self.whole_steps() else gpu.when(group < self.product.k // GROUP)

    def multiply(self, step: Expression, words: Buffer, scales: Buffer, number: Expression, sums: Buffer) -> None:
        tiles = self.shape.tiles
        offset, dtype = int(self.matrix.offset), str(self.product.x.dtype)
        unpack = gpu.unpack_int4 if dtype == "float16" else gpu.unpack_int4_bfloat16
        products = T.alloc_buffer((tiles * 4,), "float32", scope="local")
        gpu.fill(products, T.float32(0), tiles * 4)
        x = T.alloc_buffer((16,), "uint32", scope="local")
        low = T.alloc_buffer((4,), "uint32", scope="local")
        high = T.alloc_buffer((4,), "uint32", scope="local")
        with gpu.unrolled(2) as part:
            self.read_vector(step, part, x)
            with gpu.unrolled(tiles) as tile, gpu.unrolled(_WORDS_PER_GROUP) as word:
                place = ((number * tiles + tile) * 4 + part) * _WORDS_PER_GROUP + word
                unpack(gpu.at(low, 0), words[place], offset)
                unpack(gpu.at(high, 0), words[place + 2 * _WORDS_PER_GROUP], offset)
                for pair in (0, 2):
                    gpu.multiply_accumulate(
                        gpu.at(products, tile * 4),
                        (low[pair], high[pair], low[pair + 1], high[pair + 1]),
                        (x[word * 4 + pair], x[word * 4 + pair + 1]),
                        dtype,
                    )
        with gpu.unrolled(tiles * 2) as slot:
            scale = T.bind(scales[number * tiles * 2 + slot])
            first, second = products[slot * 2], products[slot * 2 + 1]
            store(sums, sums[slot] + first * gpu.low_half(scale, dtype) + second * gpu.high_half(scale, dtype), slot)

    def read_vector(self, step: Expression, part: Expression, x: Buffer) -> None:
        """The part of the vector that a thread's groups are multiplied by: that of the group whose column it holds."""
        gpu.fill(x, T.uint32(0), 16)
        group = step * GROUPS + self.row
        mine = self.row == part * 4 + self.column
        if not self.whole_steps():
            mine = tirx.all(mine, group < self.product.k // GROUP)
        with gpu.when(mine), gpu.unrolled(_WORDS_PER_GROUP) as word:
            gpu.load16(gpu.at(x, word * 4), T.address_of(self.product.x_at(0, group * GROUP + word * 8)))
            gpu.pair_with_fourth(gpu.at(x, word * 4))

    def finish(self, sums: Buffer) -> None:
        """Adds up what threads and warps have, and stores the results."""
        shape = self.shape
        rows = ROWS * shape.tiles
        shared = T.alloc_buffer((shape.warps * rows,), "float32", scope="shared")
        with gpu.unrolled(shape.tiles * 2) as slot:
            for mask in (1, 2):
                store(sums, sums[slot] + gpu.from_lane_xor(sums[slot], mask), slot)
            with gpu.when(self.column == 0):
                store(shared, sums[slot], self.warp * rows + slot * 8 + self.row)
        gpu.synchronize()
        number = self.warp * _WARP + self.lane
        within = number < results.count(self.product, rows)
        if self.product.n % rows:
            within = tirx.all(within, self.first + results.place_of(self.product, number) < self.product.n)

        def total(place: Expression) -> Expression:
            return gpu.total(shape.warps, lambda warp: shared[warp * rows + place])

        with gpu.when(within):
            results.store_result(self.product, total, row=0, first=self.first, number=number)


def _reads_ahead(k: int, shape: GemvShape) -> bool:
    """Whether each warp has a step, and as many as it asks for at once."""
    steps = -(-k // _STEP)
    return shape.warps <= steps and shape.ahead <= -(-steps // shape.warps)


schedule_packed_gemv = ShapedRule(
    name="cuda.gemv",
    shape=GemvShape,
    values={"warps": (2, 4, 8, 16, 32), "tiles": (1, 2, 4), "ahead": (1, 2, 4)},
    match=_match,
    default=lambda matched: shape_for(matched.product),
    fits=lambda matched, shape: _reads_ahead(matched.product.k, shape),
    build=_build,
    version=2,
)
