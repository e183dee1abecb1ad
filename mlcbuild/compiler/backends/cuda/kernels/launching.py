"""Kernels that are written for GPUs from the start: parameters, threads, and what the threads of a block find
together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import s_tir, tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.kernels.building import Buffer, Expression, statement

WARP = 32
_OPAQUE = 8  # TVM's number of kernels that fusion leaves alone


@dataclass(frozen=True, kw_only=True)
class Threads:
    """The threads of a block, in warps; `x` and `y` are the block's place in the grid."""

    warps: int
    x: Expression
    y: Expression
    warp: Expression
    lane: Expression

    @property
    def count(self) -> int:
        return self.warps * WARP

    @property
    def number(self) -> Expression:
        """This thread's."""
        return self.warp * WARP + self.lane


def kernel(
    parameters: Sequence[Buffer],
    body: Callable[[Threads], None],
    *,
    grid: tuple[Expression, Expression],
    warps: int = 8,
) -> tirx.PrimFunc:
    """A kernel of one launch, scheduled for good."""

    def launch() -> None:
        with (
            T.thread_binding(0, grid[1], thread="blockIdx.y") as y,
            T.thread_binding(0, grid[0], thread="blockIdx.x") as x,
            T.thread_binding(0, warps, thread="threadIdx.y") as warp,
            T.thread_binding(0, WARP, thread="threadIdx.x") as lane,
        ):
            body(Threads(warps=warps, x=x, y=y, warp=warp, lane=lane))

    block = s_tir.SBlock(iter_vars=[], reads=[], writes=[], name_hint="root", body=statement(launch))
    made = tirx.PrimFunc(list(parameters), s_tir.SBlockRealize([], True, block))
    attributes = {"tirx.is_scheduled": True, "tirx.noalias": True, "s_tir": True, "op_pattern": _OPAQUE}
    return made.with_attrs(attributes)


def register(dtype: str, value: Expression) -> Buffer:
    """A number that a thread keeps and changes: element 0 of a buffer."""
    buffer = T.alloc_buffer((1,), dtype, scope="local")
    T.buffer_store(buffer, value, [0])
    return buffer


def combined(
    threads: Threads, value: Expression, dtype: str, combine: Callable[[Expression, Expression], Expression]
) -> Expression:
    """The values of all threads of the block in one, which every thread gets."""
    mine = register(dtype, value)
    for mask in (16, 8, 4, 2, 1):
        T.buffer_store(mine, combine(mine[0], gpu.from_lane_xor(mine[0], mask)), [0])
    shared = T.alloc_buffer((threads.warps,), dtype, scope="shared")
    gpu.synchronize()
    with gpu.when(threads.lane == 0):
        T.buffer_store(shared, mine[0], [threads.warp])
    gpu.synchronize()
    result = register(dtype, shared[0])
    with T.serial(1, threads.warps) as other:
        T.buffer_store(result, combine(result[0], shared[other]), [0])
    return result[0]


def summed(threads: Threads, value: Expression) -> Expression:
    """The sum over all threads of the block, float32."""
    return combined(threads, value, "float32", lambda a, b: a + b)


def largest(threads: Threads, value: Expression) -> Expression:
    """The maximum over all threads of the block, float32."""
    return combined(threads, value, "float32", tirx.max)
