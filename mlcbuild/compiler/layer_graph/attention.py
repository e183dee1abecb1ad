"""What a KV cache computes, with the cache as plain tensors: the rotation of queries and keys, and attention.

The cache has room for a number of tokens. At token p, its first p places are filled: others are masked, whatever they
hold. New keys and values are returned, and whoever calls puts them into the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.layer_graph.building import GraphBuilder
from mlcbuild.compiler.layer_graph.graph import INTEGER, Value
from mlcbuild.compiler.models.architecture.decoder import AttentionConfig
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.architecture.rotary_tables import RotaryTable

_FAR = 1 << 30  # the position of a place in the cache that is not filled: behind every token
_HIDDEN = -1e30  # a score of which the softmax makes 0


@dataclass(frozen=True, kw_only=True)
class CacheInputs:
    """`positions` (tokens,) are those of the new tokens, one after another. `keys` and `values` (1, heads, places,
    head_dim) are the cache, with keys that are rotated."""

    positions: Value
    keys: Value
    values: Value


@dataclass(frozen=True, kw_only=True)
class Attended:
    """`heads` (tokens, query heads, head_dim), and what goes into the cache."""

    heads: Value
    keys: Value
    values: Value


def rotary_table(attention: AttentionConfig) -> RotaryTable | None:
    """How queries and keys are turned, whether the model does it or the cache; None where they are not."""
    return attention.rotary.in_model(attention.head_dim).table


def rotated(build: GraphBuilder, qkv: Value, table: RotaryTable, attention: AttentionConfig, positions: Value) -> Value:
    """Queries, keys and values (tokens, all heads, head_dim), with the first two turned."""
    turned_heads = attention.query_heads + attention.key_value_heads
    tokens, heads, width = qkv.shape
    pairs = len(table.frequencies)
    angles = build.of_two(
        "multiply",
        build.reshape(build.to_float(positions), (tokens, 1, 1)),
        build.constant(table.frequencies, (1, 1, pairs)),
    )
    cosines, sines = (build.of_one(name, angles) for name in ("cos", "sin"))
    if table.attention_factor != 1.0:
        cosines, sines = (build.scaled(each, table.attention_factor) for each in (cosines, sines))
    given = build.slice(qkv, 1, 0, turned_heads)
    turning = build.slice(given, 2, 0, 2 * pairs)
    halves = attention.rotary.form is RotaryForm.HALVES
    if halves:
        first, second = build.slice(turning, 2, 0, pairs), build.slice(turning, 2, pairs, 2 * pairs)
    else:
        apart = build.reshape(turning, (tokens, turned_heads, pairs, 2))
        first, second = (
            build.reshape(build.slice(apart, 3, place, place + 1), (tokens, turned_heads, pairs)) for place in (0, 1)
        )
    moved = (
        build.of_two("subtract", build.of_two("multiply", first, cosines), build.of_two("multiply", second, sines)),
        build.of_two("add", build.of_two("multiply", second, cosines), build.of_two("multiply", first, sines)),
    )
    if halves:
        turned = build.concat(moved, 2)
    else:
        beside = [build.reshape(each, (tokens, turned_heads, pairs, 1)) for each in moved]
        turned = build.reshape(build.concat(beside, 3), (tokens, turned_heads, 2 * pairs))
    if 2 * pairs < width:
        turned = build.concat([turned, build.slice(given, 2, 2 * pairs, width)], 2)
    return build.concat([turned, build.slice(qkv, 1, turned_heads, heads)], 1)


def attended(
    build: GraphBuilder, qkv: Value, cache: CacheInputs, attention: AttentionConfig, *, scale: float, window: int
) -> Attended:
    """Attention of new tokens over the cache and themselves. `qkv` (tokens, all heads, head_dim) are rotated;
    `window` is how many tokens a token sees, 0 for all."""
    tokens, heads, width = qkv.shape
    queries, groups = attention.query_heads, attention.key_value_heads
    each = queries // groups
    new = [
        build.reshape(
            build.transpose(build.slice(qkv, 1, begin, begin + groups), (1, 0, 2)), (1, groups, tokens, width)
        )
        for begin in (queries, heads - groups)
    ]
    keys, values = (
        build.reshape(build.concat([old, added], 2), (groups, old.shape[2] + tokens, width))
        for old, added in zip((cache.keys, cache.values), new, strict=True)
    )
    places = keys.shape[1]
    given = build.reshape(build.slice(qkv, 1, 0, queries), (tokens, groups, each, width))
    rows = build.reshape(build.transpose(given, (1, 2, 0, 3)), (groups, each * tokens, width))
    scores = build.scaled(build.matmul(rows, build.transpose(keys, (0, 2, 1))), scale)
    if attention.soft_cap:
        scores = build.scaled(build.of_one("tanh", build.scaled(scores, 1 / attention.soft_cap)), attention.soft_cap)
    seen = build.where(
        _visible(build, cache, window=window),
        build.reshape(scores, (groups, each, tokens, places)),
        build.number(_HIDDEN),
    )
    shares = build.reshape(build.of_one("softmax", seen), (groups, each * tokens, places))
    together = build.reshape(build.matmul(shares, values), (groups, each, tokens, width))
    made = build.reshape(build.transpose(together, (2, 0, 1, 3)), (tokens, queries, width))
    return Attended(heads=made, keys=new[0], values=new[1])


def _visible(build: GraphBuilder, cache: CacheInputs, *, window: int) -> Value:
    """(tokens, places and tokens): which keys a token sees."""
    positions, places = cache.positions, cache.keys.shape[2]
    (tokens,) = positions.shape
    numbers = build.constant(range(places), (places,), INTEGER)
    filled = build.of_two("greater", build.slice(positions, 0, 0, 1), numbers)
    of_places = build.where(filled, numbers, build.number(_FAR, INTEGER))
    of_keys = build.reshape(build.concat([of_places, positions], 0), (1, places + tokens))
    own = build.reshape(positions, (tokens, 1))
    visible = build.of_two("less_equal", of_keys, own)
    if window:
        first = build.of_two("subtract", own, build.number(window, INTEGER))
        visible = build.of_two("both", visible, build.of_two("greater", of_keys, first))
    return visible
