"""Which keys a query sees, and where they lie: side by side, or in the pages of the cache.

A sliding window is a matter of positions: a query sees keys that are near enough, and those of the sink. So it is the
same whether the cache still holds older keys or not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.kernels.building import Buffer, Expression
from mlcbuild.compiler.kernels.layer_rules import oldest_seen, sees_less
from mlcbuild.compiler.models.architecture.attention_rules import AttentionRules
from mlcbuild.compiler.models.architecture.window import SlidingWindow

Row = Callable[[Expression], Expression]
"""A head's number at a place."""

Keys = Callable[[Expression], tuple[Row, Row]]
"""The key and the value of a number."""


@dataclass(frozen=True, kw_only=True)
class KeyRange:
    """The keys that a query sees: numbered begin … end - 1 and, if a window has a sink, 0 … sinks - 1 before these."""

    begin: Expression
    end: Expression
    most: Expression  # no query of the call sees more
    sinks: Expression | None = None

    def within(self, window: SlidingWindow | None, *, query: Expression, first_key: Expression) -> KeyRange:
        """Those of the keys 0 … end - 1, of which the first is at the position `first_key`, that a window leaves."""
        if window is None:
            return self
        nearest = query - first_key - (window.size - window.sink - 1)
        if window.sink == 0:
            return dataclasses.replace(self, begin=tirx.min(tirx.max(nearest, 0), self.end))
        sinks = T.bind(tirx.max(tirx.min(window.sink - first_key, self.end), 0))
        return dataclasses.replace(self, begin=tirx.min(tirx.max(nearest, sinks), self.end), sinks=sinks)

    def of_layer(
        self, rules: AttentionRules, scale: Expression, *, query: Expression, first_key: Expression
    ) -> KeyRange:
        """Those that a layer with this scale sees."""
        if not rules.window:
            return self
        oldest = tirx.min(tirx.max(oldest_seen(rules, query) - first_key, 0), self.end)
        return dataclasses.replace(self, begin=T.if_then_else(sees_less(scale), oldest, self.begin))


def not_behind(
    causal: Expression, place: Expression, queries: Expression, keys: Expression, *, most: Expression
) -> KeyRange:
    """Where a mask is causal, the last query sees all keys, each one before it one less."""
    end = T.if_then_else(causal > 0, tirx.min(keys - queries + place + 1, keys), keys)
    return KeyRange(begin=T.int32(0), end=end, most=most)


@dataclass(frozen=True)
class Pages:
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
        whole = (end - begin - 1) * self.page_size
        if self.sliding_window:
            last, offset, sink = (self.lengths[row, self.sequence] for row in range(3))
            used = whole + last - offset + sink
        else:
            used = whole + self.lengths[self.sequence]
        return T.if_then_else(begin != end, used, 0)

    def most(self) -> Expression:
        """No sequence has more keys."""
        return self.page_numbers.shape[0] * self.page_size

    @property
    def page_size(self) -> int:
        return int(self.pages.shape[-2])

    def keys(self, head: Expression) -> Keys:
        size = self.page_size

        def at(key: Expression) -> tuple[Row, Row]:
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


class LatentPages(Pages):
    """A sequence in a cache of latent vectors: `pages` (pages, page size, elements). A value is the first elements of
    its key, and all heads have the same."""

    def keys(self, head: Expression) -> Keys:
        del head

        def at(key: Expression) -> tuple[Row, Row]:
            page = T.bind(self.page_numbers[self.page_starts[self.sequence] + tirx.floordiv(key, self.page_size)])
            inside = T.bind(tirx.floormod(key, self.page_size))

            def row(d: Expression) -> Expression:
                return self.pages[page, inside, d]

            return row, row

        return at
