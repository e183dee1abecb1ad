"""What threads of a warp do with floats and halves in registers, for the attention kernel."""

from __future__ import annotations

from collections.abc import Callable

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.launching import register
from mlcbuild.compiler.kernels.building import Buffer, Expression, store


def segments(head_dim: int) -> list[tuple[int, int]]:
    """How eight threads share the places of a value: (begin, halves of a thread next to each other) of each segment."""
    segments, begin = [], 0
    for size in (8, 4, 2):
        while head_dim - begin >= 8 * size:
            segments.append((begin, size))
            begin += 8 * size
    return segments


def load(to: Expression, source: Expression, halves: int) -> None:
    """Copies 8, 4 or 2 halves of global memory into registers."""
    {8: gpu.load_once, 4: gpu.load8, 2: gpu.load4}[halves](to, source)


def kept(value: Expression) -> Expression:
    """A float in a register. TVM writes out what is bound to a variable wherever that is used."""
    return register("float32", value)[0]


def fill_row(buffer: Buffer, row: Expression) -> None:
    with gpu.unrolled(4) as place:
        store(buffer, T.float32(0), row, place)


def packed(first: Expression, second: Expression) -> Expression:
    """Two floats as halves in a register."""
    low, high = (T.Cast("uint32", T.reinterpret("uint16", T.Cast("float16", value))) for value in (first, second))
    return low | (high << T.uint32(16))


def over_lanes(
    value: Expression, combine: Callable[[Expression, Expression], Expression], masks: tuple[int, ...]
) -> Expression:
    """The values of all threads of a warp whose numbers differ in bits of the masks, combined."""
    for mask in masks:
        value = kept(value)
        value = combine(value, gpu.from_lane_xor(value, mask))
    return kept(value)


def from_lane(value: Expression, lane: Expression) -> Expression:
    """The value of the thread of the warp of number `lane`."""
    return T.tvm_warp_shuffle(T.uint32(0xFFFFFFFF), value, lane, 32, 32)


def fold(combine: Callable[[Expression, Expression], Expression], values: list[Expression]) -> Expression:
    result = values[0]
    for value in values[1:]:
        result = combine(result, value)
    return result


def inverse(total: Expression) -> Expression:
    """1 / total; 0 where there are no keys."""
    return T.if_then_else(total > T.float32(0), T.float32(1) / total, T.float32(0))


def logarithm(most: Expression, total: Expression) -> Expression:
    return most + T.if_then_else(total > T.float32(0), tirx.log2(total), T.float32(0))
