"""Attention of many query tokens at once: a tile of tokens, with all query heads of one key-value head, goes over the
keys once.

Tokens times heads are the rows of a tile, which lie side by side in vectors, so that keys and values are scalars that
are multiplied with whole vectors: no sum is made across a vector, and a key is converted to float32 once for all rows.
Keys are taken in blocks, with a running maximum and sum for each row, as in FlashAttention (Dao and others, 2022), so
that memory does not grow with the number of keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels.attention_keys import KeyRange, Keys
from mlcbuild.compiler.backends.cpu.kernels.attention_scores import NO_SCORE, Attended, capped
from mlcbuild.compiler.backends.cpu.kernels.rotation import head_lanes
from mlcbuild.compiler.kernels.building import (
    Buffer,
    Expression,
    converted,
    exp2,
    float32,
    lanes,
    loop,
    splat,
    store,
)
from mlcbuild.compiler.kernels.layer_rules import slope
from mlcbuild.compiler.models.architecture.attention_rules import AttentionRules

_VECTORS = 3  # of rows that are multiplied at once,
_KEYS = 4  # with so many keys: twelve sums, which registers hold
_PLACES = 4  # or with so many numbers of a value
_FEWEST_ROWS = 32
_MOST_ROWS = 256
_NOT_SEEN = 4 * NO_SCORE


@dataclass(frozen=True, kw_only=True)
class TileShape:
    """The `tokens` of a tile, 0 for as few as fill vectors with rows, and the `keys` of a block."""

    tokens: int = 0
    keys: int = 64

    def __post_init__(self) -> None:
        if self.tokens < 0 or self.keys < 1 or self.keys % _KEYS:
            raise ValueError(f"no shape of a tile: {self}")


@dataclass(frozen=True, kw_only=True)
class Tokens(Attended):
    """The new tokens of a sequence: rows `first` … `first` + `count` - 1 of `queries`.

    `seen` are the keys that the token at a place sees, and `own_key` the number of its own key, among those that are
    given or not, where a rule asks how far back keys are. `row_lanes` is how many rows are a vector. Tiles have
    `shape`.
    """

    key_heads: int
    first: Expression
    count: Expression
    seen: Callable[[Expression], KeyRange]
    own_key: Callable[[Expression], Expression | None]
    row_lanes: int
    shape: TileShape = TileShape()

    @property
    def in_a_tile(self) -> int:
        """How many tokens a tile has; 0 where heads do not fit tiles."""
        fitting = tokens_of_tiles(self.group, self.value_dim, self.row_lanes)
        return self.shape.tokens if self.shape.tokens in fitting else next(iter(fitting), 0)

    @property
    def group(self) -> int:
        """Query heads of a key-value head."""
        return self.heads // self.key_heads


def tokens_of_tiles(group: int, value_dim: int, row_lanes: int) -> tuple[int, ...]:
    """How many tokens a tile can have, of so many query heads each: those that fill vectors with rows."""
    if value_dim % _PLACES:
        return ()
    return tuple(
        count
        for count in (4, 8, 16, 32)
        if count * group % row_lanes == 0 and _FEWEST_ROWS <= count * group <= _MOST_ROWS
    )


def attend_tile(tokens: Tokens, tile: Expression, head: Expression, keys: Keys, rules: AttentionRules) -> None:
    """The results of the tokens of a tile, and the query heads that share the key-value head `head`."""
    size, group, width, keys_at_once = tokens.in_a_tile, tokens.group, tokens.row_lanes, tokens.shape.keys
    head_dim, value_dim = tokens.head_dim, tokens.value_dim
    rows = size * group
    queries = T.alloc_buffer((head_dim, rows), "float32")
    sums = T.alloc_buffer((value_dim, rows), "float32")
    scores = T.alloc_buffer((keys_at_once, rows), "float32")
    key_block = T.alloc_buffer((keys_at_once, head_dim), "float32")
    value_block = T.alloc_buffer((keys_at_once, value_dim), "float32")
    largest, total = (T.alloc_buffer((rows,), "float32") for _ in range(2))
    begins, ends = (T.alloc_buffer((rows,), "int32") for _ in range(2))
    limits = T.alloc_buffer((2,), "int32")
    slopes, own_keys = (T.alloc_buffer((rows,), "float32") for _ in range(2)) if rules.alibi else (None, None)
    vectors = range(0, rows, width)

    def place_of(token: Expression) -> Expression:
        """Behind the last token, the last one stands for those that would fill the tile."""
        return tirx.min(tile * size + token, tokens.count - 1)

    store(limits, T.int32(2**31 - 1), 0)
    store(limits, T.int32(0), 1)
    with loop(size) as token:
        place = T.bind(place_of(token))
        seen = tokens.seen(place)
        begin, end = T.bind(seen.begin), T.bind(seen.end)
        store(limits, tirx.min(limits[0], begin), 0)
        store(limits, tirx.max(limits[1], end), 1)
        with loop(group) as number:
            row = token * group + number
            store(begins, begin, row)
            store(ends, end, row)
            if slopes is not None:
                store(slopes, slope(head * group + number, tokens.heads) * T.float32(math.log2(math.e)), row)
                store(own_keys, T.Cast("float32", tokens.own_key(place)), row)
            with loop(head_dim) as d:
                query = T.Cast("float32", tokens.queries[tokens.first + place, head * group + number, d])
                store(queries, query * (tokens.scale * T.float32(math.log2(math.e))), d, row)
    for start in vectors:
        store(largest, splat(T.float32(NO_SCORE), width), lanes(start, width))
        store(total, splat(T.float32(0), width), lanes(start, width))
    with loop(value_dim) as d:
        for start in vectors:
            store(sums, splat(T.float32(0), width), d, lanes(start, width))

    first_key = T.bind(limits[0])
    left = T.bind(tirx.max(limits[1] - first_key, 0))
    with loop(tirx.floordiv(left + keys_at_once - 1, keys_at_once)) as block:
        begin = T.bind(first_key + block * keys_at_once)
        used = T.bind(tirx.min(limits[1] - begin, keys_at_once))
        filled = T.bind(tirx.floordiv(used + _KEYS - 1, _KEYS))
        with loop(filled * _KEYS) as key:
            key_row, value_row = keys(tirx.min(begin + key, limits[1] - 1))
            for buffer, row, extent in ((key_block, key_row, head_dim), (value_block, value_row, value_dim)):
                step = head_lanes(extent)
                for d in range(0, extent, step):
                    store(buffer, float32(row(lanes(d, step)), step), key, lanes(d, step))

        for chunk in _chunks(vectors):
            with loop(filled) as step:
                products = _products(key_block, queries, step * _KEYS, chunk, width)
                for (number, start), product in products.items():
                    score = product[lanes(0, width)]
                    key = begin + step * _KEYS + number
                    at = lanes(start, width)
                    if slopes is not None and own_keys is not None:
                        score = score + slopes[at] * (splat(T.Cast("float32", key), width) - own_keys[at])
                    if rules.soft_cap:
                        score = capped(T.bind(score), rules.soft_cap, width)
                    hidden = splat(T.float32(_NOT_SEEN), width)
                    score = tirx.Select(splat(key, width) < ends[at], score, hidden)
                    score = tirx.Select(splat(key, width) < begins[at], hidden, score)
                    store(scores, score, step * _KEYS + number, at)
        for start in vectors:
            _weigh(scores, sums, largest, total, start, width, filled * _KEYS)
        for chunk in _chunks(vectors):
            with loop(value_dim // _PLACES) as part:
                _add_values(sums, scores, value_block, part * _PLACES, chunk, width, filled * _KEYS)

    with loop(tirx.min(size, tokens.count - tile * size)) as token, loop(group) as number:
        row = token * group + number
        weight = T.bind(tirx.Select(total[row] > T.float32(0), total[row], T.float32(1)))
        at = (tokens.first + tile * size + token, head * group + number)
        with loop(value_dim) as d:
            value = sums[d, row] / weight
            store(tokens.output, converted(value, str(tokens.output.dtype), 1), *at, d)
        store(tokens.logarithms, largest[row] + tirx.log2(weight), *at)


def _chunks(vectors: range) -> list[Sequence[int]]:
    parts = -(-len(vectors) // _VECTORS)
    size = -(-len(vectors) // parts)
    return [vectors[start : start + size] for start in range(0, len(vectors), size)]


def _products(
    keys: Buffer, queries: Buffer, first: Expression, chunk: Sequence[int], width: int
) -> dict[tuple[int, int], Buffer]:
    """The products of _KEYS keys and the rows of some vectors, by the key's number and the vector's first row."""
    vector = lanes(0, width)
    products = {(number, start): T.alloc_buffer((width,), "float32") for number in range(_KEYS) for start in chunk}
    for product in products.values():
        store(product, splat(T.float32(0), width), vector)
    with loop(queries.shape[0]) as d:
        rows = {start: T.bind(queries[d, lanes(start, width)]) for start in chunk}
        for number in range(_KEYS):
            key = T.bind(splat(keys[first + number, d], width))
            for start in chunk:
                product = products[number, start]
                store(product, product[vector] + key * rows[start], vector)
    return products


def _weigh(
    scores: Buffer,
    sums: Buffer,
    largest: Buffer,
    total: Buffer,
    start: int,
    width: int,
    count: Expression,
) -> None:
    """Turns the scores of a block, of a vector of rows, into weights, and what was summed before into their unit."""
    vector, at = lanes(0, width), lanes(start, width)
    most, added = (T.alloc_buffer((width,), "float32") for _ in range(2))
    store(most, largest[at], vector)
    with loop(count) as key:
        store(most, tirx.max(most[vector], scores[key, at]), vector)
    former = T.bind(exp2(largest[at] - most[vector], width))
    store(added, total[at] * former, vector)
    with loop(count) as key:
        score = T.bind(scores[key, at])
        weight = exp2(score - most[vector], width)
        unseen = score <= splat(T.float32(_NOT_SEEN), width)
        weight = T.bind(tirx.Select(unseen, splat(T.float32(0), width), weight))
        store(scores, weight, key, at)
        store(added, added[vector] + weight, vector)
    store(total, added[vector], at)
    store(largest, most[vector], at)
    with loop(sums.shape[0]) as d:
        store(sums, sums[d, at] * former, d, at)


def _add_values(
    sums: Buffer,
    weights: Buffer,
    values: Buffer,
    place: Expression,
    chunk: Sequence[int],
    width: int,
    count: Expression,
) -> None:
    """Adds the weighed values of a block, of _PLACES numbers of a value, to the rows of some vectors."""
    vector = lanes(0, width)
    results = {(number, start): T.alloc_buffer((width,), "float32") for number in range(_PLACES) for start in chunk}
    for (number, start), result in results.items():
        store(result, sums[place + number, lanes(start, width)], vector)
    with loop(count) as key:
        rows = {start: T.bind(weights[key, lanes(start, width)]) for start in chunk}
        for number in range(_PLACES):
            value = T.bind(splat(values[key, place + number], width))
            for start in chunk:
                result = results[number, start]
                store(result, result[vector] + value * rows[start], vector)
    for (number, start), result in results.items():
        store(sums, result[vector], place + number, lanes(start, width))
