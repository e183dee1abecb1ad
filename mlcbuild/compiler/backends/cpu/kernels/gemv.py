"""A packed matrix times one vector: what a token's decoding spends its time on.

Integers of four bits are multiplied as bytes where the target has AVX2 or AVX-512 (`digits`). Others become floats:
neighbouring words of a matrix row are one vector, as many as a register holds; the j-th integers of all of them are had
by masking, without a shift: the vector x is divided by 2**(bits * j) beforehand, an exact change of exponent, and laid
out so that the x-values of these words' j-th integers are neighbours. The offset is taken off once a block: each lane's
sum starts at -offset times its x-values' sum, which is the same for all rows. A block of words is multiplied by its
groups' scales once. So a register of weights costs a mask, a conversion and a fused multiply-add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels.digits import (
    Run,
    digits_for,
    has_byte_products,
    row_totals,
    split_x,
)
from mlcbuild.compiler.backends.cpu.kernels.registers import ByteLevel, ProductByRegisters, byte_level, register_lanes
from mlcbuild.compiler.kernels.building import (
    LANES,
    WORTH_THREADS,
    Buffer,
    Expression,
    concatenated,
    float32,
    horizontal_sum,
    lanes,
    loop,
    prefetch,
    splat,
    statement,
    store,
    with_body,
)
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct, PackedMatrix, match_matrix_product
from mlcbuild.compiler.kernels.shapes import ShapedRule


@dataclass(frozen=True, kw_only=True)
class GemvShape:
    """How a row is read: `rows` of the matrix are multiplied together, so that the vector is read once for them;
    `words_ahead`: so early is asked for what a thread reads, as processors look ahead no further than a page; `chains`
    sums are kept at once for a row, so that additions need not wait for each other, where integers become floats."""

    rows: int = 1
    words_ahead: int = 2048
    chains: int = 2

    def __post_init__(self) -> None:
        if self.rows < 1 or self.words_ahead < 0 or self.chains < 1:
            raise ValueError(f"no way to read rows: {self}")


_DEFAULT = GemvShape()
_LONG = 4096  # numbers whose digits leave no room in the first cache: then several rows are multiplied together
_DEFAULT_OF_LONG = GemvShape(rows=4, words_ahead=4096)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A run of equal blocks of words along a row: where it begins, how many, and how many words each has."""

    first_word: int
    count: int
    lanes: int


def _match(func: tirx.PrimFunc, target: tvm.target.Target) -> ProductByRegisters | None:
    """None unless `func` is a packed matrix times one row, with at most element-wise blocks after it."""
    product = match_matrix_product(func)
    if product is None or product.rows != 1 or not isinstance(product.matrix, PackedMatrix):
        return None
    count = register_lanes(target)
    if blocks_of(product.matrix, product.k, count) is None:
        return None
    return ProductByRegisters(product=product, lanes=count, bytes=byte_level(target))


def _schedule(matched: ProductByRegisters, shape: GemvShape) -> tirx.PrimFunc | None:
    parts = multiply_one(matched, shape)
    if parts is None:
        return None
    return with_body(matched.product.func, [statement(step) for step in parts.steps], scratch=parts.scratch)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The steps of a kernel, each of which makes its statements, and the buffers that they share."""

    steps: list[Callable[[], None]]
    scratch: list[Buffer]


def multiply_one(matched: ProductByRegisters, shape: GemvShape | None = None) -> Parts | None:
    """The product's first row, with the epilogue, by registers, with the default where no shape is given; None where
    the matrix is not packed in a way that fits."""
    product, matrix = matched.product, matched.product.matrix
    blocks = blocks_of(matrix, product.k, matched.lanes) if isinstance(matrix, PackedMatrix) else None
    if blocks is None or not isinstance(matrix, PackedMatrix):
        return None
    shape = shape or _default(matched)
    level = _byte_level(matched)
    return _build(product, matrix, blocks, shape) if level is None else _of_bytes(product, matrix, blocks, shape, level)


def _byte_level(matched: ProductByRegisters) -> ByteLevel | None:
    """What multiplies the matrix as bytes; None where its integers become floats."""
    product, level = matched.product, matched.bytes
    blocks = blocks_of(product.matrix, product.k, matched.lanes)
    if level is None or not has_byte_products(product.matrix, level, {block.lanes for block in blocks or ()}):
        return None
    return level


def _default(matched: ProductByRegisters) -> GemvShape:
    product = matched.product
    many = product.k > _LONG and product.n % _DEFAULT_OF_LONG.rows == 0
    return _DEFAULT_OF_LONG if many and _byte_level(matched) is not None else _DEFAULT


def _fits(matched: ProductByRegisters, shape: GemvShape) -> bool:
    """Whether rows divide, and nothing is chosen that makes no difference."""
    if _byte_level(matched) is not None and shape.chains != _DEFAULT.chains:
        return False
    return bool(matched.product.n % shape.rows == 0)


def blocks_of(matrix: PackedMatrix, k: int, count: int = LANES) -> list[Block] | None:
    """Blocks of `count` words, or of eight where groups and such blocks do not nest, and shorter ones at the end; None
    where groups do not nest with any, and where a row's words are not neighbours."""
    rest = k % matrix.per_word
    if matrix.by_columns or rest or matrix.group % matrix.per_word or matrix.bits * matrix.per_word > 32:
        return None
    if k % matrix.group:
        return None
    words, words_per_group = k // matrix.per_word, matrix.group // matrix.per_word
    for most in dict.fromkeys((count, LANES)):
        blocks = _blocks(words, most)
        if blocks and all(block.lanes % words_per_group == 0 or words_per_group % block.lanes == 0 for block in blocks):
            return blocks
    return None


def _blocks(words: int, most: int) -> list[Block]:
    """Blocks of `most` words, then one of each half of that down to four; [] if words are left."""
    blocks = []
    first, size = 0, most
    while size >= LANES // 2:
        number = (words - first) // size
        if number:
            blocks.append(Block(first_word=first, count=number, lanes=size))
            first += number * size
        size //= 2
    return blocks if first == words else []


def _build(product: MatrixProduct, matrix: PackedMatrix, blocks: list[Block], shape: GemvShape) -> Parts:
    words = product.k // matrix.per_word
    spread = tirx.decl_buffer((product.k,), "float32", name="spread")
    start = tirx.decl_buffer((words,), "float32", name="start")

    def prepare() -> None:
        with T.sblock("prepare"):
            T.reads(product.x_at(0, slice(0, product.k)))
            T.writes(spread[0 : product.k], start[0:words])
            for block in blocks:
                spread_x(
                    matrix,
                    block,
                    lambda k: product.x_at(0, k),
                    lambda value, place: store(spread, value, place),
                    lambda value, place: store(start, value, place),
                )

    def totals(rows: list[Expression]) -> list[Expression]:
        found = row_sums(matrix, blocks[0], rows, spread, start, shape)
        for block in blocks[1:]:
            others = row_sums(matrix, block, rows, spread, start, shape)
            found = [total + other for total, other in zip(found, others, strict=True)]
        return found

    read = [spread[0 : product.k], start[0:words]]
    return Parts(steps=[prepare, _multiply(product, matrix, shape, read, totals)], scratch=[spread, start])


def _of_bytes(
    product: MatrixProduct, matrix: PackedMatrix, blocks: list[Block], shape: GemvShape, level: ByteLevel
) -> Parts:
    words = product.k // matrix.per_word
    digits = digits_for(words)
    runs = [Run(first_word=block.first_word, times=block.count, width=block.lanes) for block in blocks]

    def prepare() -> None:
        with T.sblock("prepare"):
            T.reads(product.x_at(0, slice(0, product.k)))
            T.writes(*digits.regions)
            split_x(digits, runs, int(matrix.offset), lambda k: product.x_at(0, k))

    def totals(rows: list[Expression]) -> list[Expression]:
        return row_totals(level, matrix, runs, rows, digits, shape.words_ahead)

    return Parts(steps=[prepare, _multiply(product, matrix, shape, digits.regions, totals)], scratch=digits.buffers)


def _multiply(
    product: MatrixProduct,
    matrix: PackedMatrix,
    shape: GemvShape,
    read: list[Any],
    totals: Callable[[list[Expression]], list[Expression]],
) -> Callable[[], None]:
    """The step that multiplies all rows, whose sums are those of `totals`, with a vector that lies in `read`."""

    def multiply() -> None:
        together, groups, words = shape.rows, product.k // matrix.group, product.k // matrix.per_word
        with loop(product.n // together, parallel=product.n * product.k >= WORTH_THREADS) as number:
            with T.sblock("gemv"):
                n = T.axis.spatial(product.n // together, number)
                first = n if together == 1 else n * together
                at: Expression = n if together == 1 else slice(first, first + together)
                T.reads(*read, matrix.words[at, 0:words], matrix.scales[at, 0:groups])
                T.writes(product.output[tuple(product.output_at(0, at))])
                rows = [first + row if row else first for row in range(together)]
                for place, total in zip(rows, totals(rows), strict=True):
                    store(product.output, T.Cast(str(product.output.dtype), total), *product.output_at(0, place))
            if product.epilogue is not None and together == 1:
                T.add_to_parent(product.epilogue.at(0, number))
            elif product.epilogue is not None:
                with loop(together) as row:
                    T.add_to_parent(product.epilogue.at(0, number * together + row))

    return multiply


def spread_x(
    matrix: PackedMatrix,
    block: Block,
    x: Callable[[Expression], Expression],
    store_spread: Callable[[Expression, Expression], None],
    store_start: Callable[[Expression, Expression], None],
) -> None:
    """Lays out x for the masked integers of a block, and the sums that lanes start with; both are stored by a value and
    its place."""
    per_word = matrix.per_word
    with loop(block.count) as number, loop(block.lanes) as lane:
        word = block.first_word + number * block.lanes + lane
        total = T.float32(0)
        for place in range(per_word):
            value = float32(x(word * per_word + place), 1)
            scaled = value * T.float32(2.0 ** -_exponent(matrix, place))
            store_spread(scaled, (block.first_word + number * block.lanes) * per_word + place * block.lanes + lane)
            total = total + value
        store_start(total * T.float32(-matrix.offset), word)


def _exponent(matrix: PackedMatrix, place: int) -> int:
    """The power of two by which a masked integer is too large. The one that holds a word's sign bit is shifted down."""
    return 0 if matrix.bits * (place + 1) == 32 else matrix.bits * place


def row_sum(
    matrix: PackedMatrix,
    block: Block,
    n: Expression,
    spread: Buffer,
    start: Buffer,
) -> Expression:
    """The sum over one run of blocks of row n."""
    return row_sums(matrix, block, [n], spread, start, _DEFAULT)[0]


def row_sums(
    matrix: PackedMatrix,
    block: Block,
    rows: Sequence[Expression],
    spread: Buffer,
    start: Buffer,
    shape: GemvShape,
) -> list[Expression]:
    """The sums over one run of blocks of several rows."""
    count = block.lanes
    whole = lanes(0, count)
    totals = [T.alloc_buffer((count,), "float32") for _ in rows]
    for total in totals:
        store(total, splat(T.float32(0), count), whole)
    with loop(block.count) as number:
        first = block.first_word + number * count
        for n, total in zip(rows, totals, strict=True):
            if shape.words_ahead:
                prefetch(matrix.words[n, first + shape.words_ahead])
            words = T.bind(matrix.words[n, lanes(first, count)])
            sums = _block_sum(matrix, words, first, count, spread, start, shape.chains)
            store(total, total[whole] + sums * _scales(matrix, n, first, count), whole)
    return [horizontal_sum(total, count) for total in totals]


def _block_sum(
    matrix: PackedMatrix,
    words: Expression,
    first: Expression,
    count: int,
    spread: Buffer,
    start: Buffer,
    most: int,
) -> Expression:
    """A block's integers times the vector, in `count` lanes, by at most so many sums at once."""
    chains: list[Expression] = [start[lanes(first, count)]]
    for place in range(matrix.per_word):
        mask = ((1 << matrix.bits) - 1) << (matrix.bits * place)
        if _exponent(matrix, place) == 0 and place:
            integers = words >> splat(T.uint32(matrix.bits * place), count)
        else:
            integers = words & splat(T.uint32(mask), count)
        x = spread[lanes(first * matrix.per_word + place * count, count)]
        term = float32(integers, count) * x
        if place < most - 1:
            chains.append(term)
        else:
            chains[place % most] = term + chains[place % most]
    block_sum = chains[0]
    for chain in chains[1:]:
        block_sum = block_sum + chain
    return block_sum


def _scales(matrix: PackedMatrix, n: Expression, first_word: Expression, count: int) -> Expression:
    """The scale of each of `count` words."""
    words_per_group = matrix.group // matrix.per_word
    width = min(words_per_group, count)
    first_group = tirx.floordiv(first_word, words_per_group)
    scales = [float32(matrix.scales[n, first_group + group], 1) for group in range(count // width)]
    return concatenated([splat(scale, width) for scale in scales], count)


schedule_gemv = ShapedRule(
    name="cpu.gemv",
    shape=GemvShape,
    values={"rows": (1, 2, 4), "words_ahead": (0, 512, 1024, 2048, 4096), "chains": (1, 2, 4)},
    match=_match,
    default=_default,
    fits=_fits,
    build=_schedule,
    version=2,
)
