"""Attention of several new tokens of each sequence: over keys that lie side by side, or in pages of a cache.

A program has the queries of one key-value head for some tokens of one sequence: row r of its tile is query head
r mod GROUP of token r / GROUP. So all heads that share keys share what is loaded, and a pass of few tokens still fills
a tile. Scores are in units of log2(e); the running maximum and sum are those of FlashAttention 2 (Dao 2023).

As in TVM, a row's result comes with the base-2 logarithm of its softmax's denominator, so that results over several
ranges of keys can be merged; a row that sees no key has the result 0 and `NO_KEYS`.

The constants WINDOW, CHUNKED, SOFT_CAP, SINKS and ALIBI are a model's rules (`architecture.attention_rules`); a layer
sees less than the others if its scale is negative.
"""

from __future__ import annotations

import triton
import triton.language as tl

NO_KEYS = tl.constexpr(-5e4)
_LOG2E = tl.constexpr(1.4426950408889634)
_SEQUENCES = tl.constexpr(128)  # that a program looks at together, to find its own


@triton.jit
def _own_tile(query_starts, batch, GROUP: tl.constexpr, BLOCK_M: tl.constexpr):
    """The sequence of this program, and its first row there; the sequence is `batch` for a program that has none.

    The tiles of a sequence come last first: rows that see most keys take longest.
    """
    tile = tl.program_id(0)
    before = 0
    sequence = batch
    row = 0
    for first in range(0, batch, _SEQUENCES):
        numbers = first + tl.arange(0, _SEQUENCES)
        inside = numbers < batch
        begins = tl.load(query_starts + numbers, inside, 0)
        ends = tl.load(query_starts + numbers + 1, inside, 0)
        tiles = tl.cdiv((ends - begins) * GROUP, BLOCK_M)
        upto = before + tl.cumsum(tiles, 0)
        mine = inside & (tile < upto) & (tile >= upto - tiles)
        if tl.sum(mine.to(tl.int32), 0) > 0:
            sequence = tl.sum(tl.where(mine, numbers, 0), 0)
            row = tl.sum(tl.where(mine, upto - 1 - tile, 0), 0) * BLOCK_M
        before += tl.sum(tiles, 0)
    return sequence, row


@triton.jit
def _capped(scores, bound):
    """bound tanh(scores / bound)."""
    power = tl.exp2(scores * (2 * _LOG2E / bound))
    return bound - 2 * bound / (power + 1)


@triton.jit
def _slopes(head, ALIBI: tl.constexpr):
    """How much less a score is, a key that it is back, by the head (arXiv 2108.12409); ALIBI is the largest power of
    two that there are heads."""
    power = tl.where(head < ALIBI, (head + 1) * (-8 / ALIBI), ((head - ALIBI) * 2 + 1) * (-4 / ALIBI))
    return tl.exp2(power) * _LOG2E


@triton.jit
def _attended(
    state,
    query,
    keys,
    values,
    page_numbers,
    head,
    begin,
    end,
    key_count,
    first_seen,
    last_seen,
    scale,
    slope,
    own,
    KEY_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    ALIBI: tl.constexpr,
    MASKED: tl.constexpr,
):
    """The state (results, maxima, sums) of a tile of rows, with the keys from `begin` to `end`; with `MASKED`, a row
    sees those from `first_seen` to `last_seen`. With ALIBI a score is less by `slope` for each key from it to `own`."""
    accumulated, largest, total = state
    places = tl.arange(0, BLOCK_D)
    for first in range(begin, end, BLOCK_N):
        numbers = first + tl.arange(0, BLOCK_N)
        if PAGE > 0:
            pages = tl.load(page_numbers + numbers // PAGE, numbers < key_count, 0).to(tl.int64)
            rows = ((pages * 2) * KEY_HEADS + head) * PAGE + numbers % PAGE
        else:
            rows = numbers.to(tl.int64) * KEY_HEADS + head
        offsets = rows[:, None] * HEAD_DIM + places[None, :]
        present = (numbers < key_count)[:, None] & (places < HEAD_DIM)[None, :]
        if MASKED or BLOCK_D != HEAD_DIM:
            key = tl.load(keys + offsets, present, 0.0)
        else:
            key = tl.load(keys + offsets)
        scores = tl.dot(query, key.T) * scale
        if SOFT_CAP > 0:
            scores = _capped(scores, SOFT_CAP * _LOG2E)
        if ALIBI > 0:
            scores += slope[:, None] * (numbers[None, :] - own[:, None]).to(tl.float32)
        if MASKED:
            seen = numbers[None, :] <= last_seen[:, None]
            if WINDOW > 0:
                seen = seen & (numbers[None, :] >= first_seen[:, None])
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        correction = tl.exp2(largest - higher)
        total = total * correction + tl.sum(weights, 1)
        if MASKED or BLOCK_D != HEAD_DIM:
            value = tl.load(values + offsets, present, 0.0)
        else:
            value = tl.load(values + offsets)
        accumulated = tl.dot(weights.to(value.dtype), value, accumulated * correction[:, None])
        largest = higher
    return accumulated, largest, total


@triton.jit
def prefill(
    queries,  # (tokens, heads, HEAD_DIM)
    query_starts,  # (batch + 1,) int32
    keys,  # (keys, KEY_HEADS, HEAD_DIM), or (pages, 2, KEY_HEADS, PAGE, HEAD_DIM)
    values,  # the same; of pages, `keys` from the first value on
    key_starts,  # (batch + 1,) int32: of the keys, or of the pages
    page_numbers,  # int32, of pages
    last_lengths,  # (batch,) int32: the keys in the last page of each sequence
    positions,  # (tokens,) int32: of queries
    first_positions,  # (batch,) int32: of the first key of each sequence
    output,  # (tokens, heads, HEAD_DIM)
    logarithms,  # (tokens, heads) float32
    batch,
    causal,  # 0: a query sees all keys of its sequence
    scale,
    GROUP: tl.constexpr,  # query heads of a key-value head
    KEY_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,  # the power of two from HEAD_DIM on
    PAGE: tl.constexpr,  # keys in a page; 0 for keys that lie side by side
    WINDOW: tl.constexpr,  # keys that a query of some layers sees; 0: all
    CHUNKED: tl.constexpr,  # 1: the window is that of the query's piece of the text
    SOFT_CAP: tl.constexpr,  # 0.0: none
    SINKS: tl.constexpr,  # 1: a head behind those of a group has a score of no key for each of them
    ALIBI: tl.constexpr,  # the largest power of two that there are heads; 0: none
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    sequence, first_row = _own_tile(query_starts, batch, GROUP, BLOCK_M)
    if sequence == batch:
        return
    head = tl.program_id(1)
    first_token = tl.load(query_starts + sequence)
    tokens = tl.load(query_starts + sequence + 1) - first_token
    key_begin = tl.load(key_starts + sequence)
    key_count = tl.load(key_starts + sequence + 1) - key_begin
    if PAGE > 0:
        page_numbers += key_begin
        key_count = tl.where(key_count > 0, (key_count - 1) * PAGE + tl.load(last_lengths + sequence), 0)
    else:
        keys += key_begin.to(tl.int64) * KEY_HEADS * HEAD_DIM
        values += key_begin.to(tl.int64) * KEY_HEADS * HEAD_DIM

    rows = first_row + tl.arange(0, BLOCK_M)
    token = rows // GROUP
    places = tl.arange(0, BLOCK_D)
    given: tl.constexpr = GROUP + SINKS  # heads of a key-value head
    query_rows = (first_token + token).to(tl.int64) * (KEY_HEADS * given) + head * given + rows % GROUP
    offsets = query_rows[:, None] * HEAD_DIM + places[None, :]
    present = (token < tokens)[:, None] & (places < HEAD_DIM)[None, :]
    query = tl.load(queries + offsets, present, 0.0)

    # What every row of the tile sees, and what some do.
    ahead = tl.where(causal > 0, key_count - tokens, key_count)
    last_seen = tl.where(causal > 0, tl.minimum(token + ahead, key_count - 1), key_count - 1)
    by_all = tl.where(causal > 0, first_row // GROUP + ahead + 1, key_count)
    by_all = tl.maximum(tl.minimum(by_all, key_count), 0) // BLOCK_N * BLOCK_N
    by_some = tl.minimum(tl.where(causal > 0, (first_row + BLOCK_M - 1) // GROUP + ahead + 1, key_count), key_count)

    first_key = tl.load(first_positions + sequence)
    own = token
    first_seen = token
    slope = token
    before_all = by_all  # keys from here on are seen by all rows, up to `by_all`
    begin = 0
    if WINDOW > 0 or ALIBI > 0:
        position = tl.load(positions + first_token + tl.minimum(token, tokens - 1))
        own = position - first_key
        if ALIBI > 0:
            slope = _slopes(head * GROUP + rows % GROUP, ALIBI)
        if WINDOW > 0:
            oldest = position - (position % WINDOW if CHUNKED else WINDOW - 1) - first_key
            first_seen = tl.where(scale < 0, oldest, 0)
            scale = tl.abs(scale)
            begin = tl.maximum(tl.min(first_seen, 0), 0) // BLOCK_N * BLOCK_N
            before_all = tl.minimum(tl.cdiv(tl.maximum(tl.max(first_seen, 0), 0), BLOCK_N) * BLOCK_N, by_all)
    accumulated = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    largest = tl.full((BLOCK_M,), NO_KEYS, tl.float32)
    total = tl.full((BLOCK_M,), 1.0, tl.float32)
    state = (accumulated, largest, total)
    scale *= _LOG2E
    if WINDOW > 0:
        state = _attended(
            state, query, keys, values, page_numbers, head, begin, before_all, key_count, first_seen, last_seen, scale,
            slope, own, KEY_HEADS, HEAD_DIM, BLOCK_D, PAGE, BLOCK_N, WINDOW, SOFT_CAP, ALIBI, True,
        )  # fmt: skip
        state = _attended(
            state, query, keys, values, page_numbers, head, before_all, by_all, key_count, first_seen, last_seen, scale,
            slope, own, KEY_HEADS, HEAD_DIM, BLOCK_D, PAGE, BLOCK_N, WINDOW, SOFT_CAP, ALIBI, False,
        )  # fmt: skip
    else:
        state = _attended(
            state, query, keys, values, page_numbers, head, 0, by_all, key_count, first_seen, last_seen, scale,
            slope, own, KEY_HEADS, HEAD_DIM, BLOCK_D, PAGE, BLOCK_N, WINDOW, SOFT_CAP, ALIBI, False,
        )  # fmt: skip
    state = _attended(
        state, query, keys, values, page_numbers, head, tl.maximum(begin, by_all), by_some, key_count, first_seen,
        last_seen, scale, slope, own, KEY_HEADS, HEAD_DIM, BLOCK_D, PAGE, BLOCK_N, WINDOW, SOFT_CAP, ALIBI, True,
    )  # fmt: skip
    accumulated, largest, total = state
    if SINKS > 0:
        # Of the ranges of keys that are merged, the one with the text's first key has them.
        places_of_sinks = (first_token + token).to(tl.int64) * (KEY_HEADS * given) + head * given + GROUP
        sink = tl.load(queries + places_of_sinks * HEAD_DIM + rows % GROUP, token < tokens, 0.0).to(tl.float32) * _LOG2E
        sink = tl.where((first_key == 0) & (key_count > 0), sink, float("-inf"))
        higher = tl.maximum(largest, sink)
        weight = tl.exp2(largest - higher)
        accumulated *= weight[:, None]
        total = total * weight + tl.exp2(sink - higher)
        largest = higher
    result = accumulated / total[:, None]
    tl.store(output + offsets, result.to(output.dtype.element_ty), present)
    tl.store(logarithms + query_rows, largest + tl.log2(total), token < tokens)
