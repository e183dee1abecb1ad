"""Scores of one query token, their softmax, and the sum of values, in vectors along the head's dimension."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels.attention_keys import KeyRange, Keys, Row
from mlcbuild.compiler.backends.cpu.kernels.attention_rotation import KeyRotation
from mlcbuild.compiler.backends.cpu.kernels.rotation import head_lanes
from mlcbuild.compiler.kernels.building import (
    LANES,
    Buffer,
    Expression,
    converted,
    exp2,
    float32,
    horizontal_sum,
    lanes,
    loop,
    prefetch,
    splat,
    store,
)
from mlcbuild.compiler.kernels.layer_rules import slope
from mlcbuild.compiler.models.architecture.attention_rules import AttentionRules

_SUMS = 8  # vectors of the result that are summed at once, one register each
HEADS_AT_ONCE = 4
NO_SCORE = -5e4  # TVM's score of a key that is not seen
_KEYS_AHEAD = 16  # so early is asked for a key and its value, as pages do not follow each other in memory
_LINE = 64  # bytes that are read together


@dataclass(frozen=True, kw_only=True)
class Attended:
    """Queries (tokens, query heads, head_dim), what their scores are multiplied by, and where results go: `output`
    (tokens, query heads, elements of a value) and `logarithms` (tokens, query heads), None where nothing is merged."""

    queries: Buffer
    output: Buffer
    logarithms: Buffer | None
    scale: Expression

    @property
    def heads(self) -> int:
        return int(self.queries.shape[1])

    @property
    def head_dim(self) -> int:
        return int(self.queries.shape[2])

    @property
    def value_dim(self) -> int:
        return int(self.output.shape[2])


@dataclass(frozen=True, kw_only=True)
class Query(Attended):
    """One query token: its row in `queries`. `own_key` is the number of the key of the same token, among those that are
    given or not, where a rule asks how far back keys are."""

    row: Expression
    own_key: Expression | None = None

    def at(self, head: Expression, d: Expression) -> Expression:
        return self.queries[self.row, head, d]

    def sink(self, head: Expression, place: Expression, begins: Expression) -> Expression:
        """The score of no key, times log2(e), which is written at a place of a head; none if not `begins`."""
        score = T.Cast("float32", self.queries[self.row, head, place]) * T.float32(math.log2(math.e))
        return T.bind(tirx.Select(begins, score, T.float32(NO_SCORE)))

    @property
    def lanes(self) -> int:
        return head_lanes(self.head_dim)

    def vectors(self, row: Row) -> list[Expression]:
        """A head's numbers in float32, as vectors."""
        count = self.lanes
        return [T.bind(float32(row(lanes(d, count)), count)) for d in range(0, self.head_dim, count)]


def attend_heads(
    query: Query,
    head: Expression,
    key_heads: int,
    seen: KeyRange,
    keys: Keys,
    rotation: KeyRotation | None,
    *,
    rules: AttentionRules,
    begins: Expression,
    asks_ahead: bool = False,
) -> None:
    """All query heads that share the key-value head `head`. `begins` says whether the text's first key is among the
    keys: of the ranges of keys whose results are merged, that one has the scores of no key. With `asks_ahead`, keys and
    values are asked for before they are needed."""
    given = query.heads // key_heads
    group = given - 1 if rules.sinks else given
    at_once = next(count for count in range(HEADS_AT_ONCE, 0, -1) if group % count == 0)
    begin = T.bind(seen.begin)
    near = T.bind(tirx.max(seen.end - begin, 0))
    sinks = seen.sinks
    count = near if sinks is None else T.bind(sinks + near)

    def number_of(place: Expression) -> Expression:
        """The number of the key that is seen as the `place`-th."""
        return begin + place if sinks is None else T.if_then_else(place < sinks, place, place - sinks + begin)

    padded = tirx.floordiv(count + LANES - 1, LANES) * LANES
    with loop(group // at_once) as part:
        first = head * given + part * at_once
        scaled = T.alloc_buffer((at_once, query.head_dim), "float32")
        # The size depends on nothing that is computed here: TVM moves allocations before everything else.
        scores = T.alloc_buffer((at_once, seen.most + LANES), "float32")
        largest = T.alloc_buffer((at_once,), "float32")
        slopes = T.alloc_buffer((at_once,), "float32") if rules.alibi else None

        def score(first_key: Expression, count: Expression, position: str, *, behind: Expression | None = None) -> None:
            """The scores of `count` keys for a query at one of the rotation's positions, `behind` others."""
            with loop(at_once) as number:
                if behind is None:
                    store(largest, T.float32(NO_SCORE), number)
                if slopes is not None:
                    store(slopes, slope(first + number, query.heads) * T.float32(math.log2(math.e)), number)
                vectors = query.vectors(functools.partial(query.at, first + number))
                if rotation is not None:
                    vectors = rotation.turn_query(vectors, getattr(rotation, position))
                factor = T.bind(splat(query.scale * T.float32(math.log2(math.e)), query.lanes))
                for d, vector in enumerate(vectors):
                    store(scaled, vector * factor, number, lanes(d * query.lanes, query.lanes))
            with loop(count) as key:
                if asks_ahead:
                    _ask(query, keys, tirx.min(first_key + key + _KEYS_AHEAD, first_key + count - 1))
                row, _ = keys(first_key + key)
                vectors = query.vectors(row)
                if rotation is not None:
                    vectors = rotation.turn_key(vectors, first_key + key)
                for number in range(at_once):
                    dot = T.bind(_dot(vectors, functools.partial(_at, scaled, number), query.lanes))
                    if slopes is not None:
                        dot = T.bind(dot + slopes[number] * T.Cast("float32", first_key + key - query.own_key))
                    store(scores, dot, number, key if behind is None else behind + key)
                    store(largest, tirx.max(largest[number], dot), number)

        if sinks is not None:
            score(T.int32(0), sinks, "sink_position")
        score(begin, near, "position", behind=sinks)
        with loop(at_once) as number:
            if rules.soft_cap:
                _cap(scores, largest, number, count, padded, rules.soft_cap)
            sink = query.sink(head * given + group, part * at_once + number, begins) if rules.sinks else None
            _weigh(query, first + number, number, scores, largest, number_of, count, padded, keys, sink)


def _ask(query: Query, keys: Keys, number: Expression) -> None:
    """Asks for the memory of a key, and of its value."""
    element = 4 if str(query.queries.dtype) == "float32" else 2
    for row, size in zip(keys(number), (query.head_dim, query.value_dim), strict=True):
        for d in range(0, size, _LINE // element):
            prefetch(row(d))


def capped(x: Expression, cap: float, count: int) -> Expression:
    """cap tanh(s / cap) times log2(e), for a vector of `count` scores x = s log2(e)."""
    one, two, inverse, bound = (
        splat(T.float32(value), count) for value in (1.0, 2.0, 2 / cap, cap * math.log2(math.e))
    )
    # tanh(y) = 1 - 2 / (e**2y + 1), and e**2y = 2**(2x / cap)
    return (one - two / (exp2(x * inverse, count) + one)) * bound


def _cap(
    scores: Buffer, largest: Buffer, number: Expression, count: Expression, padded: Expression, cap: float
) -> None:
    """Scores s of one query head, times log2(e), become cap tanh(s / cap), times log2(e)."""
    with loop(tirx.floordiv(padded, LANES)) as step:
        places = lanes(step * LANES, LANES)
        store(scores, capped(scores[number, places], cap, LANES), number, places)
    most = T.alloc_buffer((LANES,), "float32")
    whole = lanes(0, LANES)
    store(most, capped(splat(largest[number], LANES), cap, LANES), whole)
    store(largest, T.if_then_else(count > 0, most[0], largest[number]), number)


def _at(buffer: Buffer, row: int, place: Expression) -> Expression:
    return buffer[row, place]


def _dot(vectors: list[Expression], other: Row, count: int) -> Expression:
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
    query: Query,
    head: Expression,
    number: Expression,
    scores: Buffer,
    largest: Buffer,
    number_of: Callable[[Expression], Expression],
    count: Expression,
    padded: Expression,
    keys: Keys,
    sink: Expression | None,
) -> None:
    """Turns the scores of one query head into weights, and writes the weighted sum of values."""
    if sink is not None:
        store(largest, tirx.max(largest[number], sink), number)
    sums = T.alloc_buffer((LANES,), "float32")
    whole = lanes(0, LANES)
    store(sums, splat(T.float32(0), LANES), whole)
    with loop(padded - count) as rest:
        store(scores, T.float32(4 * NO_SCORE), number, count + rest)
    with loop(tirx.floordiv(padded, LANES)) as step:
        places = lanes(step * LANES, LANES)
        weights = T.bind(exp2(scores[number, places] - splat(largest[number], LANES), LANES))
        store(scores, weights, number, places)
        store(sums, sums[whole] + weights, whole)
    if sink is None:
        total = T.bind(T.if_then_else(count > 0, horizontal_sum(sums, LANES), T.float32(1)))
    else:
        total = T.bind(T.if_then_else(count > 0, horizontal_sum(sums, LANES), T.float32(0)))
        total = T.bind(total + tirx.exp2(sink - largest[number]))
        total = T.bind(tirx.Select(total > T.float32(0), total, T.float32(1)))
    width, dtype = head_lanes(query.value_dim), str(query.output.dtype)
    vector = lanes(0, width)
    for start in range(0, query.value_dim, _SUMS * width):
        places = range(start, min(start + _SUMS * width, query.value_dim), width)
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
    if query.logarithms is not None:
        store(query.logarithms, largest[number] + tirx.log2(total), query.row, head)
