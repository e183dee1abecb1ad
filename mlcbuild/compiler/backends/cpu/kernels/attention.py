"""Attention over the paged key-value cache, in place of TVM's kernels for CPUs and with their parameters.

TVM's kernels take one number at a time. Here each query token and key-value head is one piece of work: the scores of
its query heads with all keys, their softmax, and the sum of values, all in vectors along the head's dimension; threads
share the pieces. Many tokens of a sequence are taken in tiles (`attention_tiles`). Numbers are float32 whatever the
cache holds.

As in TVM, a query's result comes with the base-2 logarithm of its softmax's denominator, so that the results over
several ranges of keys can be merged. Queries and keys come rotated (`rotary_mode` 0), or are rotated here (1): a cache
whose window slides keeps its keys as they are, since their positions change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels.attention_keys import KeyRange, Keys, Pages, Row, not_behind
from mlcbuild.compiler.backends.cpu.kernels.attention_rotation import KeyRotation
from mlcbuild.compiler.backends.cpu.kernels.attention_scores import Query, attend_heads
from mlcbuild.compiler.backends.cpu.kernels.attention_tiles import TileShape, Tokens, attend_tile
from mlcbuild.compiler.kernels.building import FLOATS, LANES, Buffer, Expression, loop, replace_body, statement
from mlcbuild.compiler.kernels.layer_rules import factor
from mlcbuild.compiler.kernels.rotary import supports
from mlcbuild.compiler.models.architecture.attention_rules import NO_RULES, AttentionRules
from mlcbuild.compiler.models.architecture.window import SlidingWindow

_WORTH_THREADS = 1 << 16  # multiplications


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
    rules: AttentionRules = NO_RULES,
) -> tirx.PrimFunc:
    """One query token for each sequence. `original` is TVM's kernel, whose parameters are kept.

    `sliding_window` says that a sequence in the cache may have lost tokens; `window` is what a query sees of it.
    `rules` are those of all layers.
    """
    queries, pages, page_starts, page_numbers, lengths, key_positions, query_positions = original.params[:7]
    output, logarithms, mode, position_scale, theta, scale = original.params[7:]
    key_heads = int(pages.shape[2])

    def piece(sequence: Expression, head: Expression, rotation: KeyRotation | None) -> None:
        cache = Pages(pages, page_starts, page_numbers, lengths, sliding_window, sequence)
        positions: Any = {"query": query_positions[sequence], "first_key": key_positions[sequence]}
        query = Query(
            queries=queries,
            output=output,
            logarithms=logarithms,
            row=sequence,
            scale=factor(scale, rules),
            own_key=_own_key(rules, **positions),
        )
        seen = KeyRange(begin=T.int32(0), end=cache.length(), most=cache.most())
        seen = seen.within(window, **positions).of_layer(rules, scale, **positions)
        begins = tirx.And(key_positions[sequence] == 0, cache.length() > 0)
        keys, ahead = cache.keys(head), rotation is None
        attend_heads(query, head, key_heads, seen, keys, rotation, rules=rules, begins=begins, asks_ahead=ahead)

    def rotate_and_attend() -> None:
        with loop(queries.shape[0]) as sequence:
            cache = Pages(pages, page_starts, page_numbers, lengths, sliding_window, sequence)
            rotation = KeyRotation.create(queries, position_scale, theta, rope_scaling, most=cache.most())
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
    rules: AttentionRules = NO_RULES,
    row_lanes: int = LANES,
    shape: TileShape | None = None,
) -> tirx.PrimFunc:
    """Query tokens of sequences over what the cache holds. `original` is TVM's kernel, whose parameters are kept.

    `layer_window` is that of TVM's layers of the kind `mha_sliding`, in tokens; 0 where a sequence in the cache never
    loses tokens. `window` is what a query of other layers sees. `rules` are those of all layers. `row_lanes` is how
    wide vectors are, and `shape` that of tiles (`attention_tiles`).
    """
    sliding_window = layer_window > 0
    queries, query_starts, pages, page_starts, page_numbers, lengths = original.params[:6]
    key_positions, query_positions, output, logarithms, causal = original.params[6:11]
    mode, position_scale, theta, scale = original.params[11:]
    key_heads = int(pages.shape[2])

    def attend(*, rotates: bool) -> None:
        with loop(query_starts.shape[0] - 1) as sequence:
            cache = Pages(pages, page_starts, page_numbers, lengths, sliding_window, sequence)
            key_count = T.bind(cache.length())
            first = T.bind(query_starts[sequence])
            count = T.bind(query_starts[sequence + 1] - first)
            rotation: KeyRotation | None = None
            if rotates:
                rotation = KeyRotation.create(queries, position_scale, theta, rope_scaling, most=cache.most())
                rotation.store_keys(key_positions[sequence], key_count)

            def seen(place: Expression) -> KeyRange:
                found = not_behind(causal, place, count, key_count, most=cache.most())
                if window is not None:
                    position = T.bind(query_positions[first + place])
                    found = found.within(window, query=position, first_key=key_positions[sequence])
                elif sliding_window:
                    past = tirx.max(layer_window - place - 1, 0)
                    oldest = tirx.max(key_count - past, 0)
                    found = KeyRange(
                        begin=T.if_then_else(causal > 0, oldest, found.begin),
                        end=T.if_then_else(causal > 0, key_count, found.end),
                        most=found.most,
                    )
                return found.of_layer(rules, scale, **positions(place))

            def positions(place: Expression) -> dict[str, Any]:
                return {"query": query_positions[first + place], "first_key": key_positions[sequence]}

            tokens = Tokens(
                queries=queries,
                output=output,
                logarithms=logarithms,
                key_heads=key_heads,
                first=first,
                count=count,
                scale=factor(scale, rules),
                seen=seen,
                own_key=lambda place: _own_key(rules, **positions(place)),
                row_lanes=row_lanes,
                shape=shape or TileShape(),
            )
            begins = tirx.And(key_positions[sequence] == 0, key_count > 0)
            _attend_tokens(tokens, cache.keys, query_positions, rotation, window=window, rules=rules, begins=begins)

    return replace_body(
        original, statement(lambda: _by_mode(mode, lambda: attend(rotates=False), lambda: attend(rotates=True)))
    )


def ragged_prefill(
    original: tirx.PrimFunc,
    *,
    rope_scaling: Mapping[str, Any],
    window: SlidingWindow | None = None,
    rules: AttentionRules = NO_RULES,
    row_lanes: int = LANES,
    shape: TileShape | None = None,
) -> tirx.PrimFunc:
    """Query tokens of sequences over keys and values given side by side. `original` is TVM's kernel, whose
    parameters are kept; `rules` are those of all layers. `row_lanes` is how wide vectors are, and `shape` that of tiles
    (`attention_tiles`)."""
    queries, query_starts, keys, values, key_starts, query_positions, key_positions = original.params[:7]
    output, logarithms, causal, mode, position_scale, theta, scale = original.params[7:]
    key_heads = int(keys.shape[1])

    def attend(*, rotates: bool) -> None:
        with loop(query_starts.shape[0] - 1) as sequence:
            first = T.bind(query_starts[sequence])
            count = T.bind(query_starts[sequence + 1] - first)
            first_key = T.bind(key_starts[sequence])
            key_count = T.bind(key_starts[sequence + 1] - first_key)
            rotation: KeyRotation | None = None
            if rotates:
                rotation = KeyRotation.create(queries, position_scale, theta, rope_scaling, most=keys.shape[0])
                rotation.store_keys(key_positions[sequence], key_count)

            def keys_of(head: Expression) -> Keys:
                def at(key: Expression) -> tuple[Row, Row]:
                    row = T.bind(first_key + key)
                    return (lambda d: keys[row, head, d]), (lambda d: values[row, head, d])

                return at

            def positions(place: Expression) -> dict[str, Any]:
                return {"query": query_positions[first + place], "first_key": key_positions[sequence]}

            def seen(place: Expression) -> KeyRange:
                found = not_behind(causal, place, count, key_count, most=keys.shape[0])
                return found.within(window, **positions(place)).of_layer(rules, scale, **positions(place))

            tokens = Tokens(
                queries=queries,
                output=output,
                logarithms=logarithms,
                key_heads=key_heads,
                first=first,
                count=count,
                scale=factor(scale, rules),
                seen=seen,
                own_key=lambda place: _own_key(rules, **positions(place)),
                row_lanes=row_lanes,
                shape=shape or TileShape(),
            )
            begins = key_positions[sequence] == 0
            _attend_tokens(tokens, keys_of, query_positions, rotation, window=window, rules=rules, begins=begins)

    return replace_body(
        original, statement(lambda: _by_mode(mode, lambda: attend(rotates=False), lambda: attend(rotates=True)))
    )


def _attend_tokens(
    tokens: Tokens,
    keys: Callable[[Expression], Keys],
    query_positions: Buffer,
    rotation: KeyRotation | None,
    *,
    window: SlidingWindow | None,
    rules: AttentionRules,
    begins: Expression,
) -> None:
    """All tokens of a sequence: in tiles where there are enough to fill one, else one by one. Tiles know no sink of a
    window, no score of no key, and no rotation."""
    key_heads = tokens.key_heads

    def one_by_one() -> None:
        with loop(tokens.count * key_heads, parallel=True) as number:
            place, head = tirx.floordiv(number, key_heads), tirx.floormod(number, key_heads)
            row = tokens.first + place
            query = Query(
                queries=tokens.queries,
                output=tokens.output,
                logarithms=tokens.logarithms,
                row=row,
                scale=tokens.scale,
                own_key=tokens.own_key(place),
            )
            turned = None if rotation is None else rotation.of_query(query_positions[row], window)
            attend_heads(query, head, key_heads, tokens.seen(place), keys(head), turned, rules=rules, begins=begins)

    size = tokens.in_a_tile
    if not size or rotation is not None or rules.sinks or (window is not None and window.sink):
        one_by_one()
        return
    with T.If(tokens.count >= size):
        with T.Then():
            tiles = tirx.floordiv(tokens.count + size - 1, size)
            with loop(tiles * key_heads, parallel=True) as number:
                tile, head = tirx.floordiv(number, key_heads), tirx.floormod(number, key_heads)
                attend_tile(tokens, tile, head, keys(head), rules)
        with T.Else():
            one_by_one()


def _own_key(rules: AttentionRules, *, query: Expression, first_key: Expression) -> Expression | None:
    return T.bind(query - first_key) if rules.alibi else None


def _by_mode(mode: Expression, plain: Callable[[], None], rotating: Callable[[], None]) -> None:
    with T.If(mode == 1):
        with T.Then():
            rotating()
        with T.Else():
            plain()
