"""The recurrence of `kernels.state_scan` on a GPU: a warp keeps a row of the state in registers, from the first
token of a sequence to the last.

Rows are many (those of all heads), so that other warps compute while one waits for its token.
"""

from __future__ import annotations

import contextlib

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.launching import WARP, Threads, kernel, register
from mlcbuild.compiler.kernels.building import Buffer, Expression, float32, store
from mlcbuild.compiler.kernels.state_scan import StateScan, scan_of

_WARPS = 8


def schedule_state_scan(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """None for any other kernel."""
    del target
    scan = scan_of(func)
    if scan is None:
        return None
    rows = scan.heads * scan.rows
    sequences = func.params[3].shape[0]

    def body(threads: Threads) -> None:
        row = T.bind(threads.x * _WARPS + threads.warp)
        with contextlib.nullcontext() if rows % _WARPS == 0 else gpu.when(row < rows):
            _row(func, scan, row, threads)

    return kernel(func.params, body, grid=(-(-rows // _WARPS), sequences), warps=_WARPS)


def _row(func: tirx.PrimFunc, scan: StateScan, row: Expression, threads: Threads) -> None:
    packed, decay, rate, states, begins, ends, y, made = func.params
    each = -(-scan.columns // WARP)
    sequence = threads.y
    head = T.bind(row // scan.rows)
    own, key, query = (T.alloc_buffer((each,), "float32", scope="local") for _ in range(3))

    def fill(buffer: Buffer, source: Buffer, index: Expression, at: Expression) -> None:
        """A thread's numbers of `columns` that begin `at`, 0 behind the last."""
        with gpu.unrolled(each) as number:
            column = number * WARP + threads.lane
            value = float32(source[index, at + column], 1)
            if scan.columns % WARP:
                value = T.if_then_else(column < scan.columns, value, T.float32(0))
            store(buffer, value, number)

    fill(own, states, sequence, row * scan.columns)
    begin = T.bind(T.Cast("int64", begins[sequence]))
    end = T.bind(T.Cast("int64", ends[sequence]))
    with T.serial(0, end - begin) as step:
        token = T.bind(begin + step)
        kept = T.bind(decay[token, head])
        fill(key, packed, token, scan.key(head))
        fill(query, packed, token, scan.query(head))
        difference = float32(packed[token, scan.value(head, row - head * scan.rows)], 1)
        with gpu.unrolled(each) as number:
            store(own, own[number] * kept, number)
        if scan.delta:
            difference = difference - _summed(gpu.total(each, lambda number: own[number] * key[number]))
        difference = T.bind(rate[token, head] * difference)
        with gpu.unrolled(each) as number:
            store(own, own[number] + difference * key[number], number)
        result = _summed(gpu.total(each, lambda number: own[number] * query[number]))
        with gpu.when(threads.lane == 0):
            store(y, result, token, row)
    with gpu.unrolled(each) as number:
        column = number * WARP + threads.lane
        with gpu.when(column < scan.columns):
            store(made, own[number], sequence, row * scan.columns + column)


def _summed(value: Expression) -> Expression:
    """The sum over the threads of a warp, which each of them gets."""
    mine = register("float32", value)
    for mask in (16, 8, 4, 2, 1):
        store(mine, mine[0] + gpu.from_lane_xor(mine[0], mask), 0)
    return mine[0]
