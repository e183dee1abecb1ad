"""Pieces of TIR that rules build kernels of: vectors, and the exchange of one block for others."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import s_tir, tirx
from tvm.script.ir_builder import IRBuilder

Expression = Any  # TVM's expressions carry no types that a checker can read.
Buffer = Any

FLOATS = ("float32", "float16", "bfloat16")  # types that vectors are read and written in; they compute in float32
LANES = 8  # floats in a vector: one register with AVX, two with SSE and NEON
WORTH_THREADS = 1 << 16  # multiplications below which waking a thread costs more than it saves


def lanes(start: Expression, count: int) -> Expression:
    """The places start, start + 1, …: a vector of `count` indices."""
    return start if count == 1 else T.Ramp(start, 1, count)


def splat(value: Expression, count: int) -> Expression:
    """`count` times the same value."""
    return value if count == 1 else T.Broadcast(value, count)


def concatenated(vectors: list[Expression], count: int) -> Expression:
    """One vector after another in one vector of `count` lanes."""
    return vectors[0] if len(vectors) == 1 else T.Shuffle(vectors, [T.int32(lane) for lane in range(count)])


def float32(value: Expression, count: int) -> Expression:
    """A vector of `count` floats or small integers in float32. Integers are taken as signed: CPUs convert these."""
    suffix = "" if count == 1 else f"x{count}"
    kind = str(value.ty.dtype).removesuffix(suffix)
    if kind == "uint32":
        value = T.Cast(f"int32{suffix}", value)
    return value if kind == "float32" else T.Cast(f"float32{suffix}", value)


def horizontal(combine: Callable[[Expression, Expression], Expression], vector: Buffer, count: int) -> Expression:
    """The elements of a buffer, `count` of them, a power of two, combined into one."""
    values = [vector[lane] for lane in range(count)]
    while len(values) > 1:
        half = len(values) // 2
        values = [combine(values[place], values[half + place]) for place in range(half)]
    return values[0]


def horizontal_sum(vector: Buffer, count: int) -> Expression:
    """The sum of the `count` elements, a power of two, of a buffer."""
    return horizontal(tirx.Add, vector, count)


def exp2(x: Expression, count: int) -> Expression:
    """2**x for a vector of `count` float32, within 2 units in the last place; below 2**-126 it is 2**-126, above 2**127
    it is 2**127, and what is no number stays so.

    2**x = 2**n * e**(f ln 2) for the integer n next to x and |f| <= 1/2.
    """
    given = T.bind(x)
    x = T.bind(_limited(given, -126.0, 127.0, count))
    whole = T.bind(tirx.floor(x + splat(T.float32(0.5), count)))
    result = _exp_near_zero((x - whole) * splat(T.float32(math.log(2)), count), whole, count)
    return tirx.Select(tirx.isnan(given), given, result)


def exp(x: Expression, count: int) -> Expression:
    """e**x for a vector of `count` float32, within 2 units in the last place; e**-87 is the least value, e**88 the
    largest, and what is no number stays so.

    e**x = 2**n * e**f for the integer n next to x / ln 2 and f = x - n ln 2. ln 2 is taken off in two parts, of which
    n times the first is exact (Cody and Waite).
    """
    given = T.bind(x)
    x = T.bind(_limited(given, -87.0, 88.0, count))
    whole = T.bind(tirx.floor(x * splat(T.float32(1 / math.log(2)), count) + splat(T.float32(0.5), count)))
    high = 0.693359375
    rest = x - whole * splat(T.float32(high), count) - whole * splat(T.float32(math.log(2) - high), count)
    return tirx.Select(tirx.isnan(given), given, _exp_near_zero(rest, whole, count))


def _limited(x: Expression, low: float, high: float, count: int) -> Expression:
    return tirx.max(tirx.min(x, splat(T.float32(high), count)), splat(T.float32(low), count))


def _exp_near_zero(x: Expression, power: Expression, count: int) -> Expression:
    """e**x * 2**power for |x| <= ln(2) / 2 and whole `power`: the exponential's Taylor series up to the seventh power,
    whose rest is below 6e-9, and the power of two by writing the exponent's bits."""
    x = T.bind(x)
    result = splat(T.float32(1 / math.factorial(7)), count)
    for order in range(6, -1, -1):
        result = result * x + splat(T.float32(1 / math.factorial(order)), count)
    exponent = (T.Cast(f"int32x{count}", power) + splat(T.int32(127), count)) << splat(T.int32(23), count)
    return result * T.reinterpret(f"float32x{count}", exponent)


def store(buffer: Buffer, value: Expression, *indices: Expression) -> None:
    """buffer[indices] = value."""
    T.buffer_store(buffer, value, list(indices))


def converted(value: Expression, dtype: str, count: int) -> Expression:
    """A vector of `count` float32 in a type of floats."""
    return value if dtype == "float32" else T.Cast(dtype if count == 1 else f"{dtype}x{count}", value)


def prefetch(element: Expression) -> None:
    """Asks for the memory of a buffer's element, which may lie behind the buffer's end, to be read into all caches."""
    for_reading, in_all_caches, data = T.int32(0), T.int32(3), T.int32(1)
    T.evaluate(T.call_llvm_intrin("void", "llvm.prefetch", T.address_of(element), for_reading, in_all_caches, data))


@contextlib.contextmanager
def loop(extent: Expression, *, parallel: bool = False) -> Iterator[Expression]:
    """A loop over 0 … extent - 1."""
    with (T.parallel if parallel else T.serial)(0, extent) as variable:
        yield variable


def statement(build: Callable[[], None]) -> tirx.Stmt:
    """What `build` makes, as one statement."""
    with IRBuilder() as builder, loop(1):
        build()
    return builder.get().body


def with_body(func: tirx.PrimFunc, statements: list[tirx.Stmt], *, scratch: list[Buffer]) -> tirx.PrimFunc:
    """`func` with other statements in its root block."""
    root = func.body.block
    body = statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
    block = s_tir.SBlock(
        iter_vars=[], reads=[], writes=[], name_hint="root", body=body, alloc_buffers=[*root.alloc_buffers, *scratch]
    )
    return tirx.PrimFunc(func.params, s_tir.SBlockRealize([], True, block), func.ret_type, func.attrs)


def replace_body(func: tirx.PrimFunc, body: tirx.Stmt) -> tirx.PrimFunc:
    """A kernel with the parameters of `func`, computed by `body`, which no schedule changes any more."""
    block = s_tir.SBlock(iter_vars=[], reads=[], writes=[], name_hint="root", body=body)
    made = tirx.PrimFunc(func.params, s_tir.SBlockRealize([], True, block), func.ret_type, func.attrs)
    return made.with_attrs({"tirx.is_scheduled": True, "tirx.noalias": True})
