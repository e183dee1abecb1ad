"""Texts whose last tokens attend under a sliding window: what kernels are given, and what they have to say.

The reference knows nothing of caches and pieces: it takes each token of a text by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlcbuild.compiler.models.architecture.window import SlidingWindow
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler.attention_reference import attended, rotated
from tests.compiler.kernel_running import Array

PAGE = 16


def windowed(
    queries: Array, keys: Array, values: Array, window: SlidingWindow, *, rule: dict[str, Any], rotates: bool
) -> Array:
    """Results (tokens, heads, head_dim) of all tokens of a text, in float64."""
    tokens = len(queries)
    places = np.arange(tokens)
    results = []
    for place in range(tokens):
        near = [key for key in range(place + 1) if place - key < window.size - window.sink]
        sinks = [key for key in range(min(window.sink, place + 1)) if key not in near]
        seen = np.array([*sinks, *near])
        query, key = queries[place : place + 1], keys[seen]
        if rotates:
            # A key of the sink that is not near is as far away as at the last place from which all is seen.
            distance = np.where(np.isin(seen, sinks), min(place, window.size - 1) - seen, place - seen)
            key = rotated(key, place - distance, rule)
            query = rotated(query, places[place : place + 1], rule)
        results.append(attended(query, key, values[seen], np.ones((1, len(seen)), bool))[0][0])
    return np.stack(results)


class WindowedBatch:
    """A batch of sequences, each with tokens `before` and `new` ones, in a cache that `drops` what has left the window
    or keeps all."""

    def __init__(
        self,
        sequences: Sequence[tuple[int, int]],
        window: SlidingWindow,
        *,
        drops: bool,
        heads: tuple[int, int, int] = (4, 2, 32),
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        """`heads` are the numbers of query and key heads and the size of a head."""
        random = np.random.default_rng(seed)
        self.sequences, self.window, self.drops, self.dtype = sequences, window, drops, dtype_of(dtype)
        query_heads, key_heads, head_dim = heads
        self.scale = head_dim**-0.5
        self.texts = [
            tuple(
                random.standard_normal((before + new, count, head_dim)).astype(self.dtype)
                for count in (query_heads, key_heads, key_heads)
            )
            for before, new in sequences
        ]
        self.starts = np.cumsum([0, *(new for _, new in sequences)]).astype(np.int32)
        self._lay_out(random, key_heads, head_dim)
        self.tokens = int(self.starts[-1])

    def _lay_out(self, random: np.random.Generator, key_heads: int, head_dim: int) -> None:
        size, sink = self.window.size, self.window.sink
        laid, self.held = [], []
        lengths = []
        for (before, _), (_, keys, values) in zip(self.sequences, self.texts, strict=True):
            if self.drops and before > size:
                offset = sink + 5
                tokens = [*range(sink), *range(before - size + sink, before)]
                places = [*range(sink), *range(offset, offset + size - sink)]
            else:
                offset, tokens, places = 0, list(range(before)), list(range(before))
            count = places[-1] // PAGE + 1 if places else 0
            pages = np.full((count, 2, key_heads, PAGE, head_dim), np.nan, self.dtype)
            for token, place in zip(tokens, places, strict=True):
                pages[place // PAGE, 0, :, place % PAGE] = keys[token]
                pages[place // PAGE, 1, :, place % PAGE] = values[token]
            laid.append(pages)
            self.held.append(len(tokens))
            last = places[-1] % PAGE + 1 if places else 0
            lengths.append((last, offset, sink if offset else 0))
        total = sum(map(len, laid))
        self.numbers = random.permutation(total + 2)[: max(total, 1)].astype(np.int32)  # none at all is no array
        self.pages = np.full((total + 2, 2, key_heads, PAGE, head_dim), np.nan, self.dtype)
        if total:
            self.pages[self.numbers] = np.concatenate(laid)
        self.page_starts = np.cumsum([0, *map(len, laid)]).astype(np.int32)
        self.lengths = np.array(lengths, np.int32).T.copy()
        self.positions = np.concatenate(
            [held + np.arange(new) for held, (_, new) in zip(self.held, self.sequences, strict=True)]
        ).astype(np.int32)

    def _new(self, which: int) -> Array:
        return np.concatenate(
            [text[which][before:] for text, (before, _) in zip(self.texts, self.sequences, strict=True)]
        )

    @property
    def results(self) -> list[Array]:
        queries = self._new(0)
        return [np.full_like(queries, np.nan), np.full(queries.shape[:2], np.nan, np.float32)]

    def of_ragged(self) -> list[Array]:
        """Arrays for attention among the new tokens."""
        first = np.array(self.held, np.int32)
        queries, keys, values = (self._new(which) for which in range(3))
        return [queries, self.starts, keys, values, self.starts, self.positions, first, *self.results]

    def of_prefill(self) -> list[Array]:
        """Arrays for attention of new tokens over the cache."""
        first = np.zeros(len(self.sequences), np.int32)
        cache = [self.pages, self.page_starts, self.numbers, self.lengths, first, self.positions]
        return [self._new(0), self.starts, *cache, *self.results]

    def of_decode(self) -> list[Array]:
        """Arrays for attention of one new token of each sequence over the cache."""
        queries, _, *cache = self.of_prefill()
        return [queries, *cache]

    def expected(self, rule: dict[str, Any], *, rotates: bool) -> Array:
        """What the new tokens see in all."""
        return np.concatenate(
            [
                windowed(text[0], text[1], text[2], self.window, rule=rule, rotates=rotates)[before:]
                for text, (before, _) in zip(self.texts, self.sequences, strict=True)
            ]
        )


def merged(one: Sequence[Array], other: Sequence[Array]) -> Array:
    """Results over two ranges of keys, with the base-2 logarithms of their denominators, as one, in float64."""
    largest = np.maximum(one[1], other[1]).astype(np.float64)
    weights = [np.exp2(part[1] - largest)[..., None] for part in (one, other)]
    total = one[0].astype(np.float64) * weights[0] + other[0].astype(np.float64) * weights[1]
    return total / (weights[0] + weights[1])
