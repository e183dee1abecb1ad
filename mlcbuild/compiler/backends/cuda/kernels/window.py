"""TVM's attention kernels for GPUs, changed so that a sliding window hides keys by their positions.

TVM's cache drops what has left the window between two forward passes. It does not hide the older of the tokens that one
pass appends, nor the older tokens in the cache from the later of these. Here each query sees the keys that its position
allows, whatever the cache still holds.

Keys of a sink keep the distance from a query that they had as the window was just full (`architecture.window`). Where
there is one query for a sequence, its keys of the sink are rotated further by that. Where there are several, TVM's
kernel sees the other keys alone, and a second kernel adds those of the sink: few keys, so that it need not be quick.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812
import tvm_ffi
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.launching import register
from mlcbuild.compiler.backends.cuda.kernels.tvm_attention import (
    followed_by,
    hide_in_decode,
    hide_in_prefill,
    is_load,
    load_of,
)
from mlcbuild.compiler.kernels.building import Buffer, Expression, converted, statement, store
from mlcbuild.compiler.kernels.rotary import angle, supports
from mlcbuild.compiler.models.architecture.window import SlidingWindow

_WARP = 32


def fits(original: tirx.PrimFunc, rope_scaling: Mapping[str, Any], window: SlidingWindow) -> bool:
    """Whether TVM's kernel can be changed: the kernel that adds a sink has to know the frequency rule."""
    return window.sink == 0 or supports(rope_scaling, int(original.params[0].shape[-1]))


def paged_decode(original: tirx.PrimFunc, window: SlidingWindow) -> tirx.PrimFunc:
    """One query token for each sequence. `original` is TVM's kernel, whose parameters are kept."""
    first_keys, positions = original.params[5], original.params[6]
    query = load_of(original.body, positions)

    def further(position: tirx.Add) -> Any:
        if not is_load(position.a, first_keys):
            return position
        return sink_turned(window, query=query, key=position)

    # Positions of keys first: the conditions that come second name positions too.
    turned = original.with_body(tvm_ffi.structural_map(original.body, (tirx.Add, further)))
    return hide_in_decode(turned, lambda query, key: sees(window, query=query, key=key))


def paged_prefill(original: tirx.PrimFunc, window: SlidingWindow, *, rope_scaling: Mapping[str, Any]) -> tirx.PrimFunc:
    """Query tokens of sequences over what the cache holds. `original` is TVM's kernel for a window that slides, whose
    parameters are kept."""
    queries, starts, pages, page_starts, page_numbers, lengths, first_keys, positions = original.params[:8]
    near = _near_keys(original, window, starts=starts, first_keys=first_keys, positions=positions)
    if window.sink == 0:
        return near
    page_size = int(pages.shape[3])

    def keys_of(sequence: Expression, _token: Expression) -> tuple[Expression, _Rows]:
        begin, end = T.bind(page_starts[sequence]), T.bind(page_starts[sequence + 1])
        last, offset, sink = (T.bind(lengths[row, sequence]) for row in range(3))
        count = T.if_then_else(begin != end, (end - begin - 1) * page_size + last - offset + sink, 0)

        def rows(head: Expression, key: Expression) -> tuple[_Row, _Row]:
            place = T.bind(T.if_then_else(key < sink, key, key - sink + offset))
            page = T.bind(page_numbers[begin + tirx.floordiv(place, page_size)])
            inside = T.bind(tirx.floormod(place, page_size))
            return (lambda d: pages[page, 0, head, inside, d]), (lambda d: pages[page, 1, head, inside, d])

        return count, rows

    sinks = _Sinks(original.params[7:], queries, starts, first_keys, int(pages.shape[2]), window, rope_scaling, keys_of)
    return followed_by(near, sinks.statement())


def ragged_prefill(original: tirx.PrimFunc, window: SlidingWindow, *, rope_scaling: Mapping[str, Any]) -> tirx.PrimFunc:
    """Query tokens of sequences over keys and values given side by side. `original` is TVM's kernel, whose
    parameters are kept."""
    queries, starts, keys, values, key_starts, positions, first_keys = original.params[:7]
    near = _near_keys(original, window, starts=starts, first_keys=first_keys, positions=positions)
    if window.sink == 0:
        return near

    def keys_of(sequence: Expression, token: Expression) -> tuple[Expression, _Rows]:
        first = T.bind(key_starts[sequence])
        count = T.min(key_starts[sequence + 1] - first, token - starts[sequence] + 1)

        def rows(head: Expression, key: Expression) -> tuple[_Row, _Row]:
            row = T.bind(first + key)
            return (lambda d: keys[row, head, d]), (lambda d: values[row, head, d])

        return count, rows

    given = [positions, *original.params[7:]]
    sinks = _Sinks(given, queries, starts, first_keys, int(keys.shape[1]), window, rope_scaling, keys_of)
    return followed_by(near, sinks.statement())


def sees(window: SlidingWindow, *, query: Expression, key: Expression) -> Expression:
    """Whether a query sees a key that is not behind it, by their positions."""
    near = query - key < window.size - window.sink
    return tirx.Or(key < window.sink, near) if window.sink else near


def sink_turned(window: SlidingWindow, *, query: Expression, key: Expression) -> Expression:
    """The position that a key is rotated for, if the only query that sees it is rotated for its own."""
    if window.sink == 0:
        return key
    return key + tirx.if_then_else(key < window.sink, tirx.max(query - (window.size - 1), 0), 0)


_Row = Callable[[Expression], Expression]
_Rows = Callable[[Expression, Expression], tuple[_Row, _Row]]  # of a head and a key: its key and its value


def _near_keys(
    original: tirx.PrimFunc, window: SlidingWindow, *, starts: Buffer, first_keys: Buffer, positions: Buffer
) -> tirx.PrimFunc:
    """TVM's kernel for several queries with the keys of the window alone, without the sink."""

    def is_near(query: Expression, key: Expression) -> Expression:
        near = query - key < window.size - window.sink
        return tirx.And(key >= window.sink, near) if window.sink else near

    return hide_in_prefill(original, is_near, starts=starts, first_keys=first_keys, positions=positions)


class _Sinks:
    """A kernel that adds the keys of the sink to what others have computed: a warp for each query and head."""

    def __init__(
        self,
        given: Any,
        queries: Buffer,
        starts: Buffer,
        first_keys: Buffer,
        key_heads: int,
        window: SlidingWindow,
        rope_scaling: Mapping[str, Any],
        keys_of: Callable[[Expression, Expression], tuple[Expression, _Rows]],
    ) -> None:
        self.positions, self.output, self.logarithms, _causal = given[:4]
        self.mode, self.position_scale, self.theta, self.scale = given[4:]
        self.queries, self.starts, self.first_keys = queries, starts, first_keys
        self.window, self.rope_scaling, self.keys_of = window, rope_scaling, keys_of
        self.heads, self.head_dim = int(queries.shape[1]), int(queries.shape[2])
        self.group = self.heads // key_heads
        self.pairs = -(-self.head_dim // 2 // _WARP)  # of places that are rotated together, of a thread

    def statement(self) -> tirx.Stmt:
        return statement(self._launch)

    def _launch(self) -> None:
        with (
            T.thread_binding(0, self.queries.shape[0], thread="blockIdx.x") as token,
            T.thread_binding(0, self.heads, thread="blockIdx.y") as head,
            T.thread_binding(0, _WARP, thread="threadIdx.x") as lane,
        ):
            sequence = register("int32", T.int32(0))
            with T.serial(0, self.starts.shape[0] - 1) as number, gpu.when(self.starts[number] <= token):
                store(sequence, T.Cast("int32", number), 0)
            self._add(token, head, lane, T.bind(sequence[0]))

    def _add(self, token: Expression, head: Expression, lane: Expression, sequence: Expression) -> None:
        half = self.head_dim // 2
        count, rows = self.keys_of(sequence, token)
        first_key = T.bind(self.first_keys[sequence])
        sinks = register("int32", T.min(count, self.window.sink - first_key))[0]
        position = T.bind(T.min(self.positions[token], self.window.size - 1))
        sums = T.alloc_buffer((self.pairs, 2), "float32", scope="local")
        query = T.alloc_buffer((self.pairs, 2), "float32", scope="local")
        frequencies = T.alloc_buffer((self.pairs,), "float32", scope="local")
        largest = register("float32", self.logarithms[token, head])
        total = register("float32", T.float32(1))

        def of_thread(body: Callable[[Expression, Expression, tuple[Expression, Expression]], None]) -> None:
            """Calls `body` with the number of a pair, its place, and the places of its two elements."""
            with gpu.unrolled(self.pairs) as number:
                d = T.bind(number * _WARP + lane)
                with gpu.when(d < half):
                    body(number, d, (d, d + half))

        def begin(number: Expression, d: Expression, places: tuple[Expression, Expression]) -> None:
            turn = angle(T.float32(1), d, head_dim=self.head_dim, theta=self.theta, rope_scaling=self.rope_scaling)
            rotates = T.if_then_else(self.mode == 1, self.position_scale, T.float32(0))
            store(frequencies, turn, number)  # by itself: it has bindings, which TVM loses in a larger expression
            store(frequencies, frequencies[number] * rotates, number)
            for i, place in enumerate(places):
                store(query, T.Cast("float32", self.queries[token, head, place]), number, i)
                store(sums, T.Cast("float32", self.output[token, head, place]), number, i)

        def end(number: Expression, _d: Expression, places: tuple[Expression, Expression]) -> None:
            for i, place in enumerate(places):
                value = converted(sums[number, i] / total[0], str(self.output.dtype), 1)
                store(self.output, value, token, head, place)

        with gpu.when(sinks > 0):
            of_thread(begin)
            with T.serial(0, sinks) as key:
                key_row, value_row = rows(tirx.floordiv(head, self.group), key)
                distance = T.bind(T.Cast("float32", position - first_key - key))
                score = register("float32", T.float32(0))

                def multiply(number: Expression, _d: Expression, places: tuple[Expression, Expression]) -> None:
                    x, y = (register("float32", T.Cast("float32", key_row(place)))[0] for place in places)
                    u, v = query[number, 0], query[number, 1]
                    # The product of two pairs that are turned depends on the difference of their angles.
                    turn = register("float32", distance * frequencies[number])[0]
                    along, across = u * x + v * y, u * y - v * x
                    store(score, score[0] + (along * tirx.cos(turn) + across * tirx.sin(turn)), 0)

                of_thread(multiply)
                for mask in (16, 8, 4, 2, 1):
                    other = register("float32", gpu.from_lane_xor(score[0], mask))[0]
                    store(score, score[0] + other, 0)
                scaled = register("float32", score[0] * (self.scale * T.float32(math.log2(math.e))))[0]
                most = register("float32", T.max(largest[0], scaled))[0]
                fading = register("float32", tirx.exp2(largest[0] - most))[0]
                weight = register("float32", tirx.exp2(scaled - most))[0]
                store(largest, most, 0)
                store(total, total[0] * fading + weight, 0)

                def accumulate(number: Expression, _d: Expression, places: tuple[Expression, Expression]) -> None:
                    for i, place in enumerate(places):
                        value = register("float32", T.Cast("float32", value_row(place)))[0]
                        store(sums, sums[number, i] * fading + value * weight, number, i)

                of_thread(accumulate)
            of_thread(end)
            with gpu.when(lane == 0):
                store(self.logarithms, largest[0] + tirx.log2(total[0]), token, head)
