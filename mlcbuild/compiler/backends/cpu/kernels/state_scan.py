"""The recurrence of `kernels.state_scan` on CPUs: vectors along the columns of a state, threads by head."""

from __future__ import annotations

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.kernels.building import (
    LANES,
    Buffer,
    Expression,
    float32,
    horizontal_sum,
    lanes,
    loop,
    replace_body,
    splat,
    statement,
    store,
)
from mlcbuild.compiler.kernels.state_scan import StateScan, scan_of


def schedule_state_scan(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """None for any other kernel."""
    del target
    scan = scan_of(func)
    return None if scan is None else replace_body(func, statement(lambda: _body(func, scan)))


def _body(func: tirx.PrimFunc, scan: StateScan) -> None:
    _, _, _, states, begins, ends, _, made = func.params
    with loop(states.shape[0] * scan.heads, parallel=True) as task:
        sequence, head = T.bind(task // scan.heads), T.bind(task % scan.heads)
        count = _lanes(scan)
        size = scan.rows * scan.columns
        with loop(size // count) as step:
            place = lanes(head * size + step * count, count)
            store(made, states[sequence, place], sequence, place)
        begin = T.bind(T.Cast("int64", begins[sequence]))
        end = T.bind(T.Cast("int64", ends[sequence]))
        with loop(end - begin) as step:
            _token(func, scan, sequence, head, T.bind(begin + step))


def _token(func: tirx.PrimFunc, scan: StateScan, sequence: Expression, head: Expression, token: Expression) -> None:
    packed, decay, rate, _, _, _, y, made = func.params
    count = _lanes(scan)
    steps = scan.columns // count
    kept, weight = T.bind(decay[token, head]), T.bind(rate[token, head])
    key, query = T.bind(scan.key(head)), T.bind(scan.query(head))

    def vector(at: Expression, step: Expression) -> Expression:
        return float32(packed[token, lanes(at + step * count, count)], count)

    with loop(scan.rows) as row:
        first = T.bind((head * scan.rows + row) * scan.columns)

        def own(step: Expression) -> Expression:
            return made[sequence, lanes(first + step * count, count)] * splat(kept, count)

        difference = float32(packed[token, scan.value(head, row)], 1)
        if scan.delta:
            recalled = _zeros(count)
            with loop(steps) as step:
                store(recalled, recalled[lanes(0, count)] + own(step) * vector(key, step), lanes(0, count))
            difference = difference - horizontal_sum(recalled, count)
        difference = T.bind(weight * difference)
        sums = _zeros(count)
        with loop(steps) as step:
            new = T.bind(own(step) + splat(difference, count) * vector(key, step))
            store(made, new, sequence, lanes(first + step * count, count))
            store(sums, sums[lanes(0, count)] + new * vector(query, step), lanes(0, count))
        store(y, horizontal_sum(sums, count), token, head * scan.rows + row)


def _zeros(count: int) -> Buffer:
    buffer = T.alloc_buffer((count,), "float32")
    store(buffer, splat(T.float32(0), count), lanes(0, count))
    return buffer


def _lanes(scan: StateScan) -> int:
    """Floats in a vector: a power of two."""
    count = LANES
    while scan.columns % count:
        count //= 2
    return count
