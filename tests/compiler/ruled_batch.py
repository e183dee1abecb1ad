"""Texts whose last tokens attend by the rules of a model: what kernels are given, and what they have to say.

The reference knows nothing of caches and pieces: it takes each token of a text by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlcbuild.compiler.models.architecture.attention_rules import AttentionRules
from mlcbuild.compiler.models.architecture.window import SlidingWindow
from tests.compiler.alibi import alibi_slopes
from tests.compiler.kernel_running import Array
from tests.compiler.windowed_batch import WindowedBatch


def seen_keys(rules: AttentionRules, token: int, *, sees_less: bool) -> range:
    """The keys that a token of a layer sees."""
    if not sees_less:
        return range(token + 1)
    oldest = token // rules.window * rules.window if rules.chunked else token - rules.window + 1
    return range(max(oldest, 0), token + 1)


def ruled(queries: Array, keys: Array, values: Array, rules: AttentionRules, *, scale: float, sees_less: bool) -> Array:
    """Results (tokens, query heads, head_dim) of all tokens of a text, in float64; without the heads that hold scores
    of no key."""
    key_heads = keys.shape[1]
    given = queries.shape[1] // key_heads
    group = given - 1 if rules.sinks else given
    slopes = alibi_slopes(key_heads * group)
    results = []
    for token in range(len(queries)):
        seen = seen_keys(rules, token, sees_less=sees_less)
        heads = []
        for head in range(key_heads * group):
            key_head, place = divmod(head, group)
            query = queries[token, key_head * given + place].astype(np.float64)
            scores = keys[seen, key_head].astype(np.float64) @ query * scale
            if rules.soft_cap:
                scores = np.tanh(scores / rules.soft_cap) * rules.soft_cap
            if rules.alibi:
                scores = scores - slopes[head] * (token - np.array(seen))
            if rules.sinks:
                scores = np.append(scores, np.float64(queries[token, key_head * given + group, place]))
            weights = np.exp(scores - scores.max())
            weights = (weights / weights.sum())[: len(seen)]
            heads.append(weights @ values[seen, key_head].astype(np.float64))
        results.append(heads)
    return np.array(results)


class RuledBatch(WindowedBatch):
    """A batch of sequences, each with tokens `before` and `new` ones, in a cache that keeps all."""

    def __init__(
        self,
        sequences: Sequence[tuple[int, int]],
        rules: AttentionRules,
        *,
        heads: tuple[int, int, int],
        dtype: str = "float32",
    ) -> None:
        super().__init__(sequences, SlidingWindow(size=1 << 20), drops=False, heads=heads, dtype=dtype)
        self.rules = rules
        self.lengths = self.lengths[0].copy()

    def scale_of(self, *, sees_less: bool) -> float:
        """What a layer hands to the kernels; large, so that a soft cap is felt."""
        return -4 * self.scale if sees_less else 4 * self.scale

    def expected_of(self, *, sees_less: bool) -> Array:
        """What the new tokens see in all."""
        scale = 4 * self.scale
        return np.concatenate(
            [
                ruled(text[0], text[1], text[2], self.rules, scale=scale, sees_less=sees_less)[before:]
                for text, (before, _) in zip(self.texts, self.sequences, strict=True)
            ]
        )

    def query_heads(self, results: Array) -> Array:
        """Results without the heads that hold scores of no key."""
        if not self.rules.sinks:
            return results
        tokens, heads, width = results.shape
        key_heads = self.pages.shape[2]
        of_groups = results.reshape(tokens, key_heads, heads // key_heads, width)[:, :, :-1]
        return of_groups.reshape(tokens, -1, width)
