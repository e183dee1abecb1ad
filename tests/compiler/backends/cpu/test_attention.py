"""Attention and rotation over the paged cache, against NumPy in float64."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tvm.relax.frontend.nn.llm._decode_kernels import _attention_decode_cpu
from tvm.relax.frontend.nn.llm._prefill_kernels import _attention_prefill_cpu, _attention_prefill_ragged_cpu
from tvm.relax.frontend.nn.llm.position_embedding import llama_rope_with_position_map

from mlcbuild.compiler.backends.cpu.kernels import attention, rope
from mlcbuild.compiler.script_parsing import quick_script_parsing
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler.attention_reference import LLAMA3, THETA, attended, rotated
from tests.compiler.kernel_running import Array, compiled, run

_TOLERANCE = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}


@dataclass(frozen=True, kw_only=True)
class _Shape:
    key_heads: int = 3
    query_heads: int = 9
    head_dim: int = 64
    dtype: str = "float32"


_SHAPES = [
    _Shape(),
    _Shape(dtype="float16"),
    _Shape(dtype="bfloat16"),
    _Shape(key_heads=2, query_heads=2, head_dim=80),
    _Shape(key_heads=1, query_heads=8, head_dim=128),
    _Shape(key_heads=2, query_heads=10, head_dim=16),
    _Shape(key_heads=1, query_heads=2, head_dim=100, dtype="float16"),  # vectors of two
    _Shape(key_heads=2, query_heads=2, head_dim=6),  # vectors of one
]
_CASES = [_SHAPES[0], *(pytest.param(shape, marks=pytest.mark.slow) for shape in _SHAPES[1:])]


_RULES: dict[str, dict[str, Any]] = {"plain": {}, "llama3": LLAMA3}


# Kernels, each compiled once for all numbers that it is tried with; `rule` is a name in _RULES.


@functools.cache
def _paged_decode(shape: _Shape, *, rule: str = "plain", sliding: bool = False) -> Any:
    with quick_script_parsing():
        original = _attention_decode_cpu(
            shape.key_heads, shape.query_heads, shape.head_dim, shape.dtype, sliding, _RULES[rule]
        )
    return compiled(attention.paged_decode(original, rope_scaling=_RULES[rule], sliding_window=sliding))


@functools.cache
def _ragged_prefill(shape: _Shape, row_lanes: int) -> Any:
    with quick_script_parsing():
        original = _attention_prefill_ragged_cpu(
            shape.key_heads, shape.query_heads, shape.head_dim, shape.head_dim, shape.dtype, {}
        )
    return compiled(attention.ragged_prefill(original, rope_scaling={}, row_lanes=row_lanes))


@functools.cache
def _paged_prefill(shape: _Shape, window: int) -> Any:
    with quick_script_parsing():
        original = _attention_prefill_cpu(
            shape.key_heads,
            shape.query_heads,
            shape.head_dim,
            shape.dtype,
            window > 0,
            {},
            sliding_window_size=window,
        )
    return compiled(attention.paged_prefill(original, rope_scaling={}, layer_window=window))


@functools.cache
def _rotation(dtype: str, rule: str, head_dim: int) -> Any:
    with quick_script_parsing():
        original = llama_rope_with_position_map(THETA, 0.5, head_dim, 9, 3, dtype, _RULES[rule], head_dim)
    return compiled(rope.rotate(original, theta=THETA, scale=0.5, rope_scaling=_RULES[rule]))


class _Cache:
    """A paged cache with sequences of the given lengths, their pages in any order."""

    def __init__(self, shape: _Shape, lengths: list[int], *, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        counts = [(length + 15) // 16 for length in lengths]
        total = sum(counts) + 3
        pages = random.standard_normal((total, 2, shape.key_heads, 16, shape.head_dim))
        self.pages = pages.astype(dtype_of(shape.dtype))
        self.starts = np.cumsum([0, *counts]).astype(np.int32)
        self.numbers = random.permutation(total)[: sum(counts)].astype(np.int32)
        self.last = np.array([(length - 1) % 16 + 1 if length else 0 for length in lengths], np.int32)
        self.lengths = lengths

    def of(self, sequence: int) -> tuple[Array, Array]:
        """Keys and values (length, heads, head_dim) of a sequence."""
        used = self.pages[self.numbers[self.starts[sequence] : self.starts[sequence + 1]]]
        length = self.lengths[sequence]
        keys, values = (
            used[:, which].transpose(0, 2, 1, 3).reshape(-1, *used.shape[2:3], used.shape[-1])[:length]
            for which in (0, 1)
        )
        return keys, values


def _positions(lengths: list[int]) -> Array:
    return np.concatenate([np.arange(length) for length in lengths]).astype(np.int32)


@pytest.mark.parametrize("shape", _CASES, ids=str)
@pytest.mark.parametrize("inline", [0, 1])
@pytest.mark.parametrize("rule", _RULES)
def test_a_token_attends_to_what_the_cache_holds(shape: _Shape, inline: int, rule: str) -> None:
    kernel = _paged_decode(shape, rule=rule)
    random = np.random.default_rng(0)
    for lengths in ([1], [17, 33, 160], [700, 2]):
        cache = _Cache(shape, lengths)
        batch = len(lengths)
        queries = random.standard_normal((batch, shape.query_heads, shape.head_dim)).astype(dtype_of(shape.dtype))
        first = np.arange(batch, dtype=np.int32)  # a sequence's first key may be at any position
        last = (np.array(lengths) - 1 + first).astype(np.int32)
        arrays = [queries, cache.pages, cache.starts, cache.numbers, cache.last, first, last]
        results = [np.zeros_like(queries), np.zeros(queries.shape[:2], np.float32)]
        found = run(kernel, [*arrays, *results], inline, 1.0, THETA, shape.head_dim**-0.5)
        for sequence, length in enumerate(lengths):
            keys, values = cache.of(sequence)
            query = queries[sequence : sequence + 1]
            if inline:
                query = rotated(query, last[sequence : sequence + 1], _RULES[rule])
                keys = rotated(keys, np.arange(length) + first[sequence], _RULES[rule])
            expected, logarithm = attended(query, keys, values, np.ones((1, length), bool))
            np.testing.assert_allclose(found[7][sequence], expected[0], atol=_TOLERANCE[shape.dtype])
            np.testing.assert_allclose(found[8][sequence], logarithm[0], atol=1e-4)


def test_a_sequence_without_keys_has_no_weight() -> None:
    shape = _Shape(key_heads=1, query_heads=2, head_dim=16)
    cache = _Cache(shape, [0, 5])
    queries = np.ones((2, 2, 16), np.float32)
    arrays = [queries, cache.pages, cache.starts, cache.numbers, cache.last, np.zeros(2, np.int32)]
    results = [np.zeros(2, np.int32), np.ones_like(queries), np.zeros((2, 2), np.float32)]
    found = run(_paged_decode(shape), [*arrays, *results], 0, 1.0, THETA, 0.25)
    assert not found[7][0].any()
    np.testing.assert_array_equal(found[8][0], np.float32(-5e4))


@pytest.mark.parametrize("inline", [0, 1])
def test_a_sliding_window_leaves_out_what_is_between_sink_and_window(inline: int) -> None:
    shape = _Shape()
    cache = _Cache(shape, [100])
    sink, offset = 4, 37  # keys 0 … 3, then 37 … 99
    lengths = np.array([[cache.last[0]], [offset], [sink]], np.int32)
    seen = [*range(sink), *range(offset, 100)]
    queries = np.random.default_rng(0).standard_normal((1, shape.query_heads, shape.head_dim)).astype(np.float32)
    first, position = np.zeros(1, np.int32), np.array([len(seen) - 1], np.int32)
    arrays = [queries, cache.pages, cache.starts, cache.numbers, lengths, first, position]
    results = [np.zeros_like(queries), np.zeros(queries.shape[:2], np.float32)]
    found = run(_paged_decode(shape, sliding=True), [*arrays, *results], inline, 1.0, THETA, shape.head_dim**-0.5)
    keys, values = (array[seen] for array in cache.of(0))
    query = queries
    if inline:
        # A key's position is its place in the window.
        query, keys = rotated(query, position, {}), rotated(keys, np.arange(len(seen)), {})
    expected, _ = attended(query, keys, values, np.ones((1, len(seen)), bool))
    np.testing.assert_allclose(found[7][0], expected[0], atol=3e-6)


@pytest.mark.parametrize("shape", _CASES, ids=str)
@pytest.mark.parametrize(("inline", "row_lanes"), [(0, 8), (0, 16), (1, 8)])
def test_tokens_attend_to_those_before_them(shape: _Shape, inline: int, row_lanes: int) -> None:
    kernel = _ragged_prefill(shape, row_lanes)
    random = np.random.default_rng(0)
    for lengths in ([1], [7, 1, 33], [150, 17]):
        tokens, batch = sum(lengths), len(lengths)
        starts = np.cumsum([0, *lengths]).astype(np.int32)
        queries, keys, values = (
            random.standard_normal((tokens, heads, shape.head_dim)).astype(dtype_of(shape.dtype))
            for heads in (shape.query_heads, shape.key_heads, shape.key_heads)
        )
        places = _positions(lengths)
        for causal in (0, 1):
            arrays = [queries, starts, keys, values, starts, places, np.zeros(batch, np.int32)]
            results = [np.zeros_like(queries), np.zeros(queries.shape[:2], np.float32)]
            found = run(kernel, [*arrays, *results], causal, inline, 1.0, THETA, shape.head_dim**-0.5)
            for sequence, length in enumerate(lengths):
                part = slice(starts[sequence], starts[sequence + 1])
                mask = np.tril(np.ones((length, length), bool)) if causal else np.ones((length, length), bool)
                query, key = queries[part], keys[part]
                if inline:
                    query, key = rotated(query, places[part], {}), rotated(key, places[part], {})
                expected, logarithm = attended(query, key, values[part], mask)
                np.testing.assert_allclose(found[7][part], expected, atol=_TOLERANCE[shape.dtype])
                np.testing.assert_allclose(found[8][part], logarithm, atol=1e-4)


@pytest.mark.parametrize("inline", [0, 1])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("window", [0, 60])
def test_later_pieces_of_a_prompt_attend_to_the_cache(inline: int, causal: int, window: int) -> None:
    shape = _Shape()
    cached, counts = [90, 9], [37, 9]  # a whole tile and a part of another, and too few for one
    cache = _Cache(shape, cached)
    starts = np.cumsum([0, *counts]).astype(np.int32)
    queries = np.random.default_rng(0).standard_normal((46, shape.query_heads, shape.head_dim)).astype(np.float32)
    positions = np.concatenate([np.arange(90, 127), np.arange(9, 18)]).astype(np.int32)
    lengths = np.array([cache.last, [0, 0], [0, 0]], np.int32) if window else cache.last
    arrays = [queries, starts, cache.pages, cache.starts, cache.numbers, lengths, np.zeros(2, np.int32), positions]
    results = [np.zeros_like(queries), np.zeros(queries.shape[:2], np.float32)]
    found = run(_paged_prefill(shape, window), [*arrays, *results], causal, inline, 1.0, THETA, shape.head_dim**-0.5)
    for sequence, (length, count) in enumerate(zip(cached, counts, strict=True)):
        part = slice(starts[sequence], starts[sequence + 1])
        row, column = np.arange(count)[:, None], np.arange(length)[None]
        mask = np.ones((count, length), bool)
        if causal and window:
            mask = column >= np.maximum(length - np.maximum(window - row - 1, 0), 0)
        elif causal:
            mask = column < length - count + row + 1
        keys, values = cache.of(sequence)
        query = queries[part]
        if inline:
            query, keys = rotated(query, positions[part], {}), rotated(keys, np.arange(length), {})
        expected, _ = attended(query, keys, values, mask)
        np.testing.assert_allclose(found[8][part], expected, atol=3e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("rule", _RULES)
@pytest.mark.parametrize("tokens", [1, 7, 70])
@pytest.mark.parametrize("applies", [0, 1])
@pytest.mark.parametrize("head_dim", [64, 100])
def test_queries_and_keys_are_rotated_by_their_positions(
    dtype: str, rule: str, tokens: int, applies: int, head_dim: int
) -> None:
    random = np.random.default_rng(0)
    packed = random.standard_normal((tokens, 15, head_dim)).astype(dtype_of(dtype))
    positions = random.integers(0, 500, tokens).astype(np.int32)
    empty = [np.zeros((tokens, heads, head_dim), dtype_of(dtype)) for heads in (9, 3, 3)]
    found = run(_rotation(dtype, rule, head_dim), [packed, positions, *empty], applies)
    expected = rotated(packed[:, :12], positions * 0.5 * applies, _RULES[rule])
    # Angles of 250 have 3e-5 between float32 neighbours.
    tolerance = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
    np.testing.assert_allclose(np.concatenate(found[2:4], axis=1), expected, atol=tolerance)
    np.testing.assert_array_equal(found[4], packed[:, 12:])


@pytest.mark.parametrize(("rule", "head_dim"), [({"rope_type": "yarn"}, 64), ({"rope_type": "gptj"}, 64), ({}, 25)])
def test_kernels_of_other_rules_and_heads_stay_as_they_are(rule: dict[str, Any], head_dim: int) -> None:
    with quick_script_parsing():
        decode = _attention_decode_cpu(1, 1, head_dim, "float32", False, {})
        rotation = llama_rope_with_position_map(THETA, 1.0, head_dim, 1, 1, "float32", {}, head_dim)
    assert not attention.fits(decode, rule)
    assert not rope.fits(rotation, rule)
