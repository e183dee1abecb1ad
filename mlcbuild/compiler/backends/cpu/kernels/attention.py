"""Attention over the paged key-value cache, in place of TVM's kernels for CPUs and with their parameters.

TVM's kernels take one number at a time. Here each query token and key-value head is one piece of work: the scores of
its query heads with all keys, their softmax, and the sum of values, all in vectors along the head's dimension; threads
share the pieces. Numbers are float32 whatever the cache holds.

A sliding window is a matter of positions: a query sees keys that are near enough, and those of the sink. So it is the
same whether the cache still holds older keys or not. Where a query is beyond the window, keys of the sink stay as far
from it as they are from the last query that sees everything: they meet a query that is rotated for that position.

As in TVM, a query's result comes with the base-2 logarithm of its softmax's denominator, so that the results over
several ranges of keys can be merged. Queries and keys come rotated (`rotary_mode` 0), or are rotated here (1): a cache
whose window slides keeps its keys as they are, since their positions change.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels.rotation import head_lanes, rotated, store_frequencies, store_rotation
from mlcbuild.compiler.kernels.building import (
    FLOATS,
    LANES,
    Buffer,
    Expression,
    converted,
    exp2,
    float32,
    horizontal_sum,
    lanes,
    loop,
    replace_body,
    splat,
    statement,
    store,
)
from mlcbuild.compiler.kernels.rotary import supports
from mlcbuild.compiler.models.window import SlidingWindow

_SUMS = 8  # vectors of the result that are summed at once, one register each
_HEADS_AT_ONCE = 4
_NO_SCORE = -5e4  # TVM's score of a key that is not seen
_WORTH_THREADS = 1 << 16  # multiplications

Keys = Callable[[Expression], tuple[Callable[[Expression], Expression], Callable[[Expression], Expression]]]


@dataclass(frozen=True, kw_only=True)
class _Range:
    """The keys that a query sees: numbered begin … end - 1 and, if a window has a sink, 0 … sinks - 1 before these."""

    begin: Expression
    end: Expression
    most: Expression  # no query of the call sees more
    sinks: Expression | None = None

    def within(self, window: SlidingWindow | None, *, query: Expression, first_key: Expression) -> _Range:
        """Those of the keys 0 … end - 1, of which the first is at the position `first_key`, that a window leaves."""
        if window is None:
            return self
        nearest = query - first_key - (window.size - window.sink - 1)
        if window.sink == 0:
            return dataclasses.replace(self, begin=tirx.min(tirx.max(nearest, 0), self.end))
        sinks = T.bind(tirx.max(tirx.min(window.sink - first_key, self.end), 0))
        return dataclasses.replace(self, begin=tirx.min(tirx.max(nearest, sinks), self.end), sinks=sinks)


@dataclass(frozen=True, kw_only=True)
class _Query:
    """One query token: its row in `queries` (tokens, query heads, head_dim), and where results go."""

    queries: Buffer
    output: Buffer
    logarithms: Buffer
    row: Expression
    scale: Expression

    def at(self, head: Expression, d: Expression) -> Expression:
        return self.queries[self.row, head, d]

    @property
    def heads(self) -> int:
        return int(self.queries.shape[1])

    @property
    def head_dim(self) -> int:
        return int(self.queries.shape[2])

    @property
    def lanes(self) -> int:
        return head_lanes(self.head_dim)

    def vectors(self, row: _Row) -> list[Expression]:
        """A head's numbers in float32, as vectors."""
        count = self.lanes
        return [T.bind(float32(row(lanes(d, count)), count)) for d in range(0, self.head_dim, count)]


def fits(kernel: tirx.PrimFunc, rope_scaling: Mapping[str, Any]) -> bool:
    """Whether the kernels here can stand for one of TVM's."""
    queries = kernel.params[0]
    return supports(rope_scaling, int(queries.shape[-1])) and str(queries.dtype) in FLOATS


def paged_decode(
    original: tirx.PrimFunc,
    *,
    rope_scaling: Mapping[str, Any],
    sliding_window: bool = False,
    window: SlidingWindow | None = None,
) -> tirx.PrimFunc:
    """One query token for each sequence. `original` is TVM's kernel, whose parameters are kept.

    `sliding_window` says that a sequence in the cache may have lost tokens; `window` is what a query sees of it.
    """
    queries, pages, page_starts, page_numbers, lengths, key_positions, query_positions = original.params[:7]
    output, logarithms, mode, position_scale, theta, scale = original.params[7:]
    key_heads = int(pages.shape[2])

    def piece(sequence: Expression, head: Expression, rotation: _Rotation | None) -> None:
        cache = _Pages(pages, page_starts, page_numbers, lengths, sliding_window, sequence)
        query = _Query(queries=queries, output=output, logarithms=logarithms, row=sequence, scale=scale)
        seen = _Range(begin=T.int32(0), end=cache.length(), most=cache.most())
        seen = seen.within(window, query=query_positions[sequence], first_key=key_positions[sequence])
        _attend(query, head, key_heads, seen, cache.keys(head), rotation)

    def rotate_and_attend() -> None:
        with loop(queries.shape[0]) as sequence:
            cache = _Pages(pages, page_starts, page_numbers, lengths, sliding_window, sequence)
            rotation = _Rotation.create(queries, position_scale, theta, rope_scaling, most=cache.most())
            rotation.store_keys(key_positions[sequence], cache.length())
            turned = rotation.of_query(query_positions[sequence], window)
            with loop(key_heads, parallel=True) as head:
                piece(sequence, head, turned)

    def attend() -> None:
        batch = queries.shape[0]
        work = page_numbers.shape[0] * (int(pages.shape[3]) * int(queries.shape[1]) * int(queries.shape[2]))
        with T.If(work >= _WORTH_THREADS):
            with T.Then(), loop(batch * key_heads, parallel=True) as number:
                piece(tirx.floordiv(number, key_heads), tirx.floormod(number, key_heads), None)
            with T.Else(), loop(batch * key_heads) as number:
                piece(tirx.floordiv(number, key_heads), tirx.floormod(number, key_heads), None)

    return replace_body(original, statement(lambda: _by_mode(mode, attend, rotate_and_attend)))


def paged_prefill(
    original: tirx.PrimFunc,
    *,
    rope_scaling: Mapping[str, Any],
    layer_window: int = 0,
    window: SlidingWindow | None = None,
) -> tirx.PrimFunc:
    """Query tokens of sequences over what the cache holds. `original` is TVM's kernel, whose parameters are kept.

    `layer_window` is that of TVM's layers of the kind `mha_sliding`, in tokens; 0 where a sequence in the cache never
    loses tokens. `window` is what a query of other layers sees.
    """
    sliding_window = layer_window > 0
    queries, query_starts, pages, page_starts, page_numbers, lengths = original.params[:6]
    key_positions, query_positions, output, logarithms, causal = original.params[6:11]
    mode, position_scale, theta, scale = original.params[11:]
    key_heads = int(pages.shape[2])

    def attend(*, rotates: bool) -> None:
        with loop(query_starts.shape[0] - 1) as sequence:
            cache = _Pages(pages, page_starts, page_numbers, lengths, sliding_window, sequence)
            key_count = T.bind(cache.length())
            first = T.bind(query_starts[sequence])
            count = T.bind(query_starts[sequence + 1] - first)
            rotation: _Rotation | None = None
            if rotates:
                rotation = _Rotation.create(queries, position_scale, theta, rope_scaling, most=cache.most())
                rotation.store_keys(key_positions[sequence], key_count)
            with loop(count * key_heads, parallel=True) as number:
                place, head = tirx.floordiv(number, key_heads), tirx.floormod(number, key_heads)
                seen = _seen(causal, place, count, key_count, most=cache.most())
                if window is not None:
                    position = T.bind(query_positions[first + place])
                    seen = seen.within(window, query=position, first_key=key_positions[sequence])
                elif sliding_window:
                    past = tirx.max(layer_window - place - 1, 0)
                    oldest = tirx.max(key_count - past, 0)
                    seen = _Range(
                        begin=T.if_then_else(causal > 0, oldest, seen.begin),
                        end=T.if_then_else(causal > 0, key_count, seen.end),
                        most=seen.most,
                    )
                query = _Query(queries=queries, output=output, logarithms=logarithms, row=first + place, scale=scale)
                turned = None if rotation is None else rotation.of_query(query_positions[first + place], window)
                _attend(query, head, key_heads, seen, cache.keys(head), turned)

    return replace_body(
        original, statement(lambda: _by_mode(mode, lambda: attend(rotates=False), lambda: attend(rotates=True)))
    )


def ragged_prefill(
    original: tirx.PrimFunc, *, rope_scaling: Mapping[str, Any], window: SlidingWindow | None = None
) -> tirx.PrimFunc:
    """Query tokens of sequences over keys and values given side by side. `original` is TVM's kernel, whose
    parameters are kept."""
    queries, query_starts, keys, values, key_starts, query_positions, key_positions = original.params[:7]
    output, logarithms, causal, mode, position_scale, theta, scale = original.params[7:]
    key_heads = int(keys.shape[1])

    def attend(*, rotates: bool) -> None:
        with loop(query_starts.shape[0] - 1) as sequence:
            first = T.bind(query_starts[sequence])
            count = T.bind(query_starts[sequence + 1] - first)
            first_key = T.bind(key_starts[sequence])
            key_count = T.bind(key_starts[sequence + 1] - first_key)
            rotation: _Rotation | None = None
            if rotates:
                rotation = _Rotation.create(queries, position_scale, theta, rope_scaling, most=keys.shape[0])
                rotation.store_keys(key_positions[sequence], key_count)
            with loop(count * key_heads, parallel=True) as number:
                place, head = tirx.floordiv(number, key_heads), tirx.floormod(number, key_heads)

                def at(key: Expression, head: Expression = head) -> tuple[_Row, _Row]:
                    row = T.bind(first_key + key)
                    return (lambda d: keys[row, head, d]), (lambda d: values[row, head, d])

                query = _Query(queries=queries, output=output, logarithms=logarithms, row=first + place, scale=scale)
                seen = _seen(causal, place, count, key_count, most=keys.shape[0])
                seen = seen.within(window, query=query_positions[first + place], first_key=key_positions[sequence])
                turned = None if rotation is None else rotation.of_query(query_positions[first + place], window)
                _attend(query, head, key_heads, seen, at, turned)

    return replace_body(
        original, statement(lambda: _by_mode(mode, lambda: attend(rotates=False), lambda: attend(rotates=True)))
    )


def _by_mode(mode: Expression, plain: Callable[[], None], rotating: Callable[[], None]) -> None:
    with T.If(mode == 1):
        with T.Then():
            rotating()
        with T.Else():
            plain()


@dataclass(frozen=True, kw_only=True)
class _Rotation:
    """Cosines and sines for the keys of a sequence, (most keys, head_dim / 2), and the position of a query."""

    frequencies: Buffer
    cosines: Buffer
    sines: Buffer
    scale: Expression
    position: Expression | None = None
    sink_position: Expression | None = None  # for keys of the sink, where a window has one

    @staticmethod
    def create(
        queries: Buffer, scale: Expression, theta: Expression, rope_scaling: Mapping[str, Any], *, most: Expression
    ) -> _Rotation:
        half = int(queries.shape[2]) // 2
        frequencies = T.alloc_buffer((half,), "float32")
        store_frequencies(frequencies, theta=theta, rope_scaling=rope_scaling)
        cosines, sines = (T.alloc_buffer((most, half), "float32") for _ in range(2))
        return _Rotation(frequencies=frequencies, cosines=cosines, sines=sines, scale=scale)

    def store_keys(self, first: Expression, count: Expression) -> None:
        """Fills the tables, for keys whose positions begin at `first`."""
        with loop(count, parallel=True) as key:
            position = T.bind(T.Cast("float32", first + key) * self.scale)
            store_rotation(position, self.frequencies, self.cosines, self.sines, key)

    def of_query(self, position: Expression, window: SlidingWindow | None) -> _Rotation:
        sink_position = tirx.min(position, window.size - 1) if window is not None and window.sink else None
        return dataclasses.replace(self, position=position, sink_position=sink_position)

    def turn_query(self, vectors: list[Expression], position: Expression) -> list[Expression]:
        half = int(self.frequencies.shape[0])
        cosines, sines = (T.alloc_buffer((half,), "float32") for _ in range(2))
        position = T.bind(T.Cast("float32", position) * self.scale)
        store_rotation(position, self.frequencies, cosines, sines)
        return rotated(vectors, cosines, sines)

    def turn_key(self, vectors: list[Expression], key: Expression) -> list[Expression]:
        return rotated(vectors, self.cosines, self.sines, key)


_Row = Callable[[Expression], Expression]


def _seen(causal: Expression, place: Expression, queries: Expression, keys: Expression, *, most: Expression) -> _Range:
    """Where a mask is causal, the last query sees all keys, each one before it one less."""
    end = T.if_then_else(causal > 0, tirx.min(keys - queries + place + 1, keys), keys)
    return _Range(begin=T.int32(0), end=end, most=most)


@dataclass(frozen=True)
class _Pages:
    """A sequence in the paged cache: `pages` (pages, key or value, heads, page size, head_dim)."""

    pages: Buffer
    page_starts: Buffer
    page_numbers: Buffer
    lengths: Buffer  # (sequences,) or, where a window slides, (3, sequences)
    sliding_window: bool
    sequence: Expression

    def length(self) -> Expression:
        """The number of keys; with a sliding window, those in the window and the sink."""
        begin, end = self.page_starts[self.sequence], self.page_starts[self.sequence + 1]
        whole = (end - begin - 1) * int(self.pages.shape[3])
        if self.sliding_window:
            last, offset, sink = (self.lengths[row, self.sequence] for row in range(3))
            used = whole + last - offset + sink
        else:
            used = whole + self.lengths[self.sequence]
        return T.if_then_else(begin != end, used, 0)

    def most(self) -> Expression:
        """No sequence has more keys."""
        return self.page_numbers.shape[0] * int(self.pages.shape[3])

    def keys(self, head: Expression) -> Keys:
        size = int(self.pages.shape[3])

        def at(key: Expression) -> tuple[_Row, _Row]:
            place = key
            if self.sliding_window:
                offset, sink = self.lengths[1, self.sequence], self.lengths[2, self.sequence]
                place = T.if_then_else(key < sink, key, key - sink + offset)
            place = T.bind(place)
            page = T.bind(self.page_numbers[self.page_starts[self.sequence] + tirx.floordiv(place, size)])
            inside = T.bind(tirx.floormod(place, size))
            return (
                lambda d: self.pages[page, 0, head, inside, d],
                lambda d: self.pages[page, 1, head, inside, d],
            )

        return at


def _attend(
    query: _Query, head: Expression, key_heads: int, seen: _Range, keys: Keys, rotation: _Rotation | None
) -> None:
    """All query heads that share the key-value head `head`."""
    group = query.heads // key_heads
    at_once = next(count for count in range(_HEADS_AT_ONCE, 0, -1) if group % count == 0)
    begin = T.bind(seen.begin)
    near = T.bind(tirx.max(seen.end - begin, 0))
    sinks = seen.sinks
    count = near if sinks is None else T.bind(sinks + near)

    def number_of(place: Expression) -> Expression:
        """The number of the key that is seen as the `place`-th."""
        return begin + place if sinks is None else T.if_then_else(place < sinks, place, place - sinks + begin)

    padded = tirx.floordiv(count + LANES - 1, LANES) * LANES
    with loop(group // at_once) as part:
        first = head * group + part * at_once
        scaled = T.alloc_buffer((at_once, query.head_dim), "float32")
        # The size depends on nothing that is computed here: TVM moves allocations before everything else.
        scores = T.alloc_buffer((at_once, seen.most + LANES), "float32")
        largest = T.alloc_buffer((at_once,), "float32")

        def score(first_key: Expression, count: Expression, position: str, *, behind: Expression | None = None) -> None:
            """The scores of `count` keys for a query at one of the rotation's positions, `behind` others."""
            with loop(at_once) as number:
                if behind is None:
                    store(largest, T.float32(_NO_SCORE), number)
                vectors = query.vectors(functools.partial(query.at, first + number))
                if rotation is not None:
                    vectors = rotation.turn_query(vectors, getattr(rotation, position))
                factor = T.bind(splat(query.scale * T.float32(math.log2(math.e)), query.lanes))
                for d, vector in enumerate(vectors):
                    store(scaled, vector * factor, number, lanes(d * query.lanes, query.lanes))
            with loop(count) as key:
                row, _ = keys(first_key + key)
                vectors = query.vectors(row)
                if rotation is not None:
                    vectors = rotation.turn_key(vectors, first_key + key)
                for number in range(at_once):
                    dot = T.bind(_dot(vectors, functools.partial(_at, scaled, number), query.lanes))
                    store(scores, dot, number, key if behind is None else behind + key)
                    store(largest, tirx.max(largest[number], dot), number)

        if sinks is not None:
            score(T.int32(0), sinks, "sink_position")
        score(begin, near, "position", behind=sinks)
        with loop(at_once) as number:
            _weigh(query, first + number, number, scores, largest, number_of, count, padded, keys)


def _at(buffer: Buffer, row: int, place: Expression) -> Expression:
    return buffer[row, place]


def _dot(vectors: list[Expression], other: _Row, count: int) -> Expression:
    """The product of two rows along the head's dimension, in vectors of `count`."""
    chains: list[Expression] = [None, None]
    for number, vector in enumerate(vectors):
        term = vector * other(lanes(number * count, count))
        previous = chains[number % 2]
        chains[number % 2] = term if previous is None else previous + term
    total = T.alloc_buffer((count,), "float32")
    store(total, chains[0] if chains[1] is None else chains[0] + chains[1], lanes(0, count))
    return horizontal_sum(total, count)


def _weigh(
    query: _Query,
    head: Expression,
    number: Expression,
    scores: Buffer,
    largest: Buffer,
    number_of: Callable[[Expression], Expression],
    count: Expression,
    padded: Expression,
    keys: Keys,
) -> None:
    """Turns the scores of one query head into weights, and writes the weighted sum of values."""
    sums = T.alloc_buffer((LANES,), "float32")
    whole = lanes(0, LANES)
    store(sums, splat(T.float32(0), LANES), whole)
    with loop(padded - count) as rest:
        store(scores, T.float32(4 * _NO_SCORE), number, count + rest)
    with loop(tirx.floordiv(padded, LANES)) as step:
        places = lanes(step * LANES, LANES)
        weights = T.bind(exp2(scores[number, places] - splat(largest[number], LANES), LANES))
        store(scores, weights, number, places)
        store(sums, sums[whole] + weights, whole)
    total = T.bind(T.if_then_else(count > 0, horizontal_sum(sums, LANES), T.float32(1)))
    width, dtype = query.lanes, str(query.output.dtype)
    vector = lanes(0, width)
    for start in range(0, query.head_dim, _SUMS * width):
        places = range(start, min(start + _SUMS * width, query.head_dim), width)
        results = [T.alloc_buffer((width,), "float32") for _ in places]
        for result in results:
            store(result, splat(T.float32(0), width), vector)
        with loop(count) as key:
            _, row = keys(number_of(key))
            weight = T.bind(splat(scores[number, key], width))
            for d, result in zip(places, results, strict=True):
                store(result, result[vector] + float32(row(lanes(d, width)), width) * weight, vector)
        for d, result in zip(places, results, strict=True):
            value = result[vector] * splat(T.float32(1) / total, width)
            store(query.output, converted(value, dtype, width), query.row, head, lanes(d, width))
    store(query.logarithms, largest[number] + tirx.log2(total), query.row, head)
