"""Root mean square norm of rows, and of the sum of two rows, which is kept as well: a block a row.

What takes time is to ask for memory and the threads' meeting, not computing. So a thread asks for all of its numbers,
those of the weight too, in vectors of 16 bytes before it needs the first, and the threads meet once.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.launching import WARP, Threads, kernel, register, summed
from mlcbuild.compiler.kernels.building import Buffer, Expression, lanes, store

DTYPES = ("float16", "float32")
_VECTOR_BITS = 128
_MOST_WARPS = 32


def rms_norm(width: int, dtype: str, epsilon: float) -> tirx.PrimFunc:
    """(x (a, b, width), weight (width,)) → x / sqrt(mean(x²) + epsilon) · weight, computed in float32.

    `dtype` is one of DTYPES, and everything is of it.
    """
    rows = _Rows(width, dtype)
    x, result = rows.buffer("x"), rows.buffer("normed")
    weight = tirx.decl_buffer((width,), dtype, name="weight")

    def body(threads: Threads) -> None:
        own, scales = rows.part(), rows.part()
        rows.read_weight(threads, weight, scales)
        with rows.vectors(threads) as (mine, place):
            store(own, x[threads.y, threads.x, place], mine)
        rows.norm(threads, own, scales, result, epsilon)

    return kernel([x, weight, result], body, grid=rows.grid, warps=rows.warps)


def add_rms_norm(width: int, dtype: str, epsilon: float) -> tirx.PrimFunc:
    """(x (a, b, width), y (a, b, width), weight (width,)) → (x + y, the norm of that as `rms_norm` has it)."""
    rows = _Rows(width, dtype)
    x, y, total, result = (rows.buffer(name) for name in ("x", "y", "total", "normed"))
    weight = tirx.decl_buffer((width,), dtype, name="weight")

    def body(threads: Threads) -> None:
        own, other, scales = rows.part(), rows.part(), rows.part()
        rows.read_weight(threads, weight, scales)
        with rows.vectors(threads) as (mine, place):
            store(own, x[threads.y, threads.x, place], mine)
            store(other, y[threads.y, threads.x, place], mine)
        with gpu.unrolled(rows.each) as number:
            # The sum of two halves in float32, rounded, is their sum in float16.
            both = T.Cast("float32", own[number]) + T.Cast("float32", other[number])
            store(own, T.Cast(dtype, both), number)
        with rows.vectors(threads) as (mine, place):
            store(total, own[mine], threads.y, threads.x, place)
        rows.norm(threads, own, scales, result, epsilon)

    return kernel([x, y, weight, total, result], body, grid=rows.grid, warps=rows.warps)


class _Rows:
    """How the threads of a block share a row: each has `count` vectors of `lanes` numbers, `each` numbers in all."""

    def __init__(self, width: int, dtype: str) -> None:
        if dtype not in DTYPES or width < 1:
            raise ValueError(f"a norm of rows of {width} {dtype!r}")
        self.width = width
        self.dtype = dtype
        self.lanes = math.gcd(width, _VECTOR_BITS // int(dtype.removeprefix("float")))
        self.warps = min(_MOST_WARPS, -(-width // (self.lanes * WARP)))
        self.count = -(-width // (self.lanes * self.warps * WARP))
        self.each = self.count * self.lanes
        self._outer, self._inner = tirx.Var("outer", "int64"), tirx.Var("inner", "int64")

    @property
    def grid(self) -> tuple[Expression, Expression]:
        return (self._inner, self._outer)

    def buffer(self, name: str) -> Buffer:
        """Rows behind two sizes: whichever of them counts in a model's function, the kernel is the same."""
        return tirx.decl_buffer((self._outer, self._inner, self.width), self.dtype, name=name)

    def part(self) -> Buffer:
        """A thread's numbers of a row, 0 where the row is at its end."""
        buffer = T.alloc_buffer((self.each,), self.dtype, scope="local")
        if not self._fits:
            gpu.fill(buffer, tirx.const(0, self.dtype), self.each)
        return buffer

    @property
    def _fits(self) -> bool:
        return self.each * self.warps * WARP == self.width

    @contextlib.contextmanager
    def vectors(self, threads: Threads) -> Iterator[tuple[Expression, Expression]]:
        """Where each vector of a thread is, in its part and in the row. Neighbours' vectors are neighbours."""
        with gpu.unrolled(self.count) as number:
            place = (number * threads.count + threads.number) * self.lanes
            with contextlib.nullcontext() if self._fits else gpu.when(place < self.width):
                yield lanes(number * self.lanes, self.lanes), lanes(place, self.lanes)

    def read_weight(self, threads: Threads, weight: Buffer, scales: Buffer) -> None:
        """Asks for what no kernel writes before it waits for those that write the rest."""
        with self.vectors(threads) as (mine, place):
            store(scales, weight[place], mine)
        gpu.wait_for_inputs()

    def norm(self, threads: Threads, own: Buffer, scales: Buffer, result: Buffer, epsilon: float) -> None:
        """Writes the norm of the row that the threads' parts `own` make up."""
        squares = register("float32", T.float32(0))
        with gpu.unrolled(self.each) as number:
            value = T.bind(T.Cast("float32", own[number]))
            store(squares, squares[0] + value * value, 0)
        with gpu.when(self._outer * self._inner == 1):
            gpu.let_next_begin()
        mean = summed(threads, squares[0]) * T.float32(1 / self.width)
        factor = T.bind(tirx.rsqrt(mean + T.float32(epsilon)))
        with gpu.unrolled(self.each) as number:
            value = T.Cast("float32", own[number]) * factor * T.Cast("float32", scales[number])
            store(own, T.Cast(self.dtype, value), number)
        with self.vectors(threads) as (mine, place):
            store(result, own[mine], threads.y, threads.x, place)
