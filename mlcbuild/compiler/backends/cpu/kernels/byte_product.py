"""A matrix of signed bytes times vectors of signed bytes, summed in int32.

Sums of integers are exact in any order, so a vector has the same numbers alone and among others, on every processor.
What adds products of neighbouring bytes depends on the processor: four at once with VNNI, whose one factor has no sign
(the matrix's bytes plus 128, and 128 times the vector's sum is taken off); two at once of 16 bits with AVX-512 and
AVX2.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx
from tvm.target.codegen import target_has_features

from mlcbuild.compiler.backends.cpu.kernels.matmul import TILE, largest_divisor
from mlcbuild.compiler.kernels.building import (
    LANES,
    WORTH_THREADS,
    Buffer,
    Expression,
    lanes,
    loop,
    splat,
    statement,
    store,
    with_body,
)
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct, match_byte_product

_VECTORS = 4  # that are multiplied together
_OFFSET = 128


@dataclass(frozen=True, kw_only=True)
class _Dot:
    """How products are added into `lanes` sums at once, `per_lane` of them to each. Bytes are widened to `bits` bits.
    `intrinsic` is LLVM's; with `adds` it takes the sums too. `rows` of the matrix are multiplied together."""

    feature: str
    lanes: int
    per_lane: int
    bits: int
    rows: int
    intrinsic: str = ""
    adds: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of a row that are taken at once."""
        return self.lanes * self.per_lane

    def sums(self, total: Expression, matrix: Expression, x: Expression) -> Expression:
        """The sums with the products of vectors from `read`."""
        if self.adds:
            return T.call_llvm_intrin(f"int32x{self.lanes}", self.intrinsic, total, matrix, x)
        if self.intrinsic:
            return total + T.call_llvm_intrin(f"int32x{self.lanes}", self.intrinsic, matrix, x)
        return total + matrix * x

    def read(self, values: Expression) -> Expression:
        """Bytes as the products take them."""
        return values if self.bits == 8 else T.Cast(f"int{self.bits}x{self.bytes}", values)

    def read_matrix(self, values: Expression) -> Expression:
        """Those of the matrix, which one kind of products takes without a sign."""
        return values ^ splat(T.int8(-128), self.bytes) if self.adds else self.read(values)


_DOTS = (
    _Dot(
        feature="avx512vnni",
        lanes=16,
        per_lane=4,
        bits=8,
        rows=4,
        intrinsic="llvm.x86.avx512.vpdpbusd.512",
        adds=True,
    ),
    _Dot(feature="avx512bw", lanes=16, per_lane=2, bits=16, rows=4, intrinsic="llvm.x86.avx512.pmaddw.d.512"),
    _Dot(feature="avx2", lanes=8, per_lane=2, bits=16, rows=2, intrinsic="llvm.x86.avx2.pmadd.wd"),
    _Dot(feature="", lanes=LANES, per_lane=1, bits=32, rows=2),
)


def schedule_byte_product(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """None unless `func` is a product of signed bytes whose rows are whole vectors of eight, with at most an
    element-wise block after it."""
    product = match_byte_product(func)
    if product is None or product.k % LANES:
        return None
    dot = next(
        dot
        for dot in _DOTS
        if product.k % dot.bytes == 0 and (not dot.feature or target_has_features(dot.feature, target))
    )
    return _build(product, dot)


def _build(product: MatrixProduct, dot: _Dot) -> tirx.PrimFunc:
    rows, k, tile = product.rows, product.k, largest_divisor(product.n, TILE)
    wide = None if dot.adds else tirx.decl_buffer((rows, k), f"int{dot.bits}", name="widened")
    offsets = tirx.decl_buffer((rows,), "int32", name="offsets") if dot.adds else None

    def prepare() -> None:
        with loop(rows) as number, T.sblock("prepare"):
            row = T.axis.spatial(rows, number)
            T.reads(product.x_at(row, slice(0, k)))
            if wide is not None:
                T.writes(wide[row, 0:k])
                with loop(k // dot.bytes) as step:
                    places = lanes(step * dot.bytes, dot.bytes)
                    store(wide, dot.read(product.x_at(row, places)), row, places)
            elif offsets is not None:
                T.writes(offsets[row])
                total = T.alloc_buffer((dot.lanes,), "int32")
                store(total, splat(T.int32(0), dot.lanes), lanes(0, dot.lanes))
                with loop(k // dot.lanes) as step:
                    values = T.Cast(f"int32x{dot.lanes}", product.x_at(row, lanes(step * dot.lanes, dot.lanes)))
                    store(total, total[lanes(0, dot.lanes)] + values, lanes(0, dot.lanes))
                store(offsets, _sum(total[lanes(0, dot.lanes)]) * T.int32(_OFFSET), row)

    def multiply() -> None:
        with loop(product.n // tile, parallel=product.n * k >= WORTH_THREADS) as number:
            with T.sblock("matmul"):
                first = T.axis.spatial(product.n // tile, number) * tile
                x = product.x_at(slice(0, rows), slice(0, k)) if wide is None else wide[0:rows, 0:k]
                more = [] if offsets is None else [offsets[0:rows]]
                T.reads(x, product.matrix[first : first + tile, 0:k], *more)
                T.writes(product.output[tuple(product.output_at(slice(0, rows), slice(first, first + tile)))])
                _multiply_tile(product, dot, wide, offsets, first, tile)
            if product.epilogue is not None:
                with loop(rows) as row, T.vectorized(0, tile) as column:
                    T.add_to_parent(product.epilogue.at(row, number * tile + column))

    scratch = [buffer for buffer in (wide, offsets) if buffer is not None]
    return with_body(product.func, [statement(step) for step in (prepare, multiply)], scratch=scratch)


def _multiply_tile(
    product: MatrixProduct, dot: _Dot, wide: Buffer | None, offsets: Buffer | None, first: Expression, tile: int
) -> None:
    """All vectors with a tile of the matrix's rows."""
    rows = product.rows
    some = functools.partial(_multiply_some, product, dot, wide, offsets, first)
    if not isinstance(rows, int) or rows >= _VECTORS:
        with loop(tirx.floordiv(rows, _VECTORS)) as number:
            some(number * _VECTORS, _VECTORS, tile, largest_divisor(tile, dot.rows))
    if not isinstance(rows, int) or rows % _VECTORS:
        whole = tirx.floordiv(rows, _VECTORS) * _VECTORS
        with loop(rows - whole) as number:
            some(whole + number, 1, tile, largest_divisor(tile, 4))


def _multiply_some(
    product: MatrixProduct,
    dot: _Dot,
    wide: Buffer | None,
    offsets: Buffer | None,
    first: Expression,
    row: Expression,
    vectors: int,
    tile: int,
    together: int,
) -> None:
    """`vectors` vectors, beginning at `row`, with the tile, `together` of its rows at a time."""
    whole = lanes(0, dot.lanes)
    with loop(tile // together) as part:
        begin = first + part * together
        sums = [[T.alloc_buffer((dot.lanes,), "int32") for _ in range(together)] for _ in range(vectors)]
        for line in sums:
            for total in line:
                store(total, splat(T.int32(0), dot.lanes), whole)
        with loop(product.k // dot.bytes) as step:
            places = lanes(step * dot.bytes, dot.bytes)
            weights = [T.bind(dot.read_matrix(product.matrix[begin + place, places])) for place in range(together)]
            for vector, line in enumerate(sums):
                values = dot.read(product.x_at(row + vector, places)) if wide is None else wide[row + vector, places]
                bound = T.bind(values)
                for weight, total in zip(weights, line, strict=True):
                    store(total, dot.sums(total[whole], weight, bound), whole)
        for vector, line in enumerate(sums):
            for place, total in enumerate(line):
                value = _sum(total[whole])
                if offsets is not None:
                    value = value - offsets[row + vector]
                store(product.output, value, *product.output_at(row + vector, begin + place))


def _sum(vector: Expression) -> Expression:
    return T.call_llvm_intrin("int32", "llvm.vector.reduce.add", vector)
