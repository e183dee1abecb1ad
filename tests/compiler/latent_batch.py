"""Texts whose last tokens attend by latent vectors: what kernels are given, and what they have to say.

The reference makes keys and values of every latent vector, and knows nothing of caches, pieces and absorbed matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlcbuild.compiler.models.architecture.latent import ALONE, IN_CACHE
from mlcbuild.compiler.models.caches.kv_cache import KVCacheGeometry, LatentGeometry
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler.kernel_running import Array

PAGE = 16


def latent_geometry(dtype: str, *, heads: int, rank: int, plain: int, rotated: int, value: int) -> KVCacheGeometry:
    """A cache of one layer."""
    return KVCacheGeometry(
        attention_kind="mla",
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=1,
        head_dim=rank + rotated,
        rotates=False,
        rope_theta=10000.0,
        rope_scale=1.0,
        rope_scaling=(),
        dtype=dtype,
        latent=LatentGeometry(rank=rank, key_dim=plain + rotated, value_dim=value),
    )


class LatentBatch:
    """A batch of sequences, each with tokens `before` and `new` ones. In a pass of one token of each, TVM's cache has
    these already."""

    def __init__(self, sequences: Sequence[tuple[int, int]], geometry: KVCacheGeometry, *, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        latent, dtype = geometry.latent, dtype_of(geometry.dtype)
        assert latent is not None
        self.sequences, self.rank = sequences, latent.rank
        heads, rotated = geometry.num_attention_heads, geometry.head_dim - latent.rank
        plain = latent.key_dim - rotated
        self.scale = latent.key_dim**-0.5
        self.single = all(new == 1 for _, new in sequences)
        up_keys = random.standard_normal((heads, latent.rank, plain)) / latent.rank**0.5
        self.up_values = random.standard_normal((heads, latent.value_dim, latent.rank)) / latent.rank**0.5
        self.starts = np.cumsum([0, *(new for _, new in sequences)]).astype(np.int32)
        self.first = np.array([before for before, _ in sequences], np.int32)
        own: list[tuple[Array, Array, Array, Array]] = []
        laid, lengths, expected = [], [], []
        for before, new in sequences:
            kept = random.standard_normal((before + new, geometry.head_dim)).astype(dtype)
            queries = random.standard_normal((new, heads, latent.key_dim)).astype(dtype)
            wide = kept.astype(np.float64)
            shared = np.broadcast_to(wide[:, None, latent.rank :], (before + new, heads, rotated))
            keys = np.concatenate([np.einsum("tr,hrp->thp", wide[:, : latent.rank], up_keys), shared], axis=-1)
            values = np.einsum("tr,hvr->thv", wide[:, : latent.rank], self.up_values)
            absorbed = np.concatenate(
                [np.einsum("thp,hrp->thr", queries[..., :plain].astype(np.float64), up_keys), queries[..., plain:]],
                axis=-1,
            )
            own.append((queries, keys[before:].astype(dtype), values[before:].astype(dtype), absorbed.astype(dtype)))
            expected.append(_attended(queries.astype(np.float64), keys, values, self.scale))
            held = before + new if self.single else before
            pages = np.full((-(-held // PAGE), PAGE, geometry.head_dim), np.nan, dtype)
            for token in range(held):
                pages[token // PAGE, token % PAGE] = kept[token]
            laid.append(pages)
            lengths.append((held - 1) % PAGE + 1 if held else 0)
        self.queries, self.keys, self.values, self.absorbed = (
            np.concatenate(parts) for parts in zip(*own, strict=True)
        )
        self.expected = np.concatenate(expected)
        total = sum(map(len, laid))
        self.numbers = random.permutation(total + 2)[: max(total, 1)].astype(np.int32)  # none at all is no array
        self.pages = np.full((total + 2, PAGE, geometry.head_dim), np.nan, dtype)
        if total:
            self.pages[self.numbers] = np.concatenate(laid)
        self.page_starts = np.cumsum([0, *map(len, laid)]).astype(np.int32)
        self.lengths = np.array(lengths, np.int32)

    def _results(self, width: int) -> list[Array]:
        shape = self.queries.shape[:2]
        return [np.full((*shape, width), np.nan, self.queries.dtype), np.full(shape, np.nan, np.float32)]

    def of_ragged(self) -> list[Array]:
        """Arrays for attention among the new tokens."""
        positions = np.zeros(len(self.queries), np.int32)
        keys = [self.keys, self.values, self.starts, positions, self.first]
        return [self.queries, self.starts, *keys, *self._results(self.values.shape[2])]

    def of_paged(self) -> list[Array]:
        """Arrays for attention of the new tokens over the cache."""
        cache = [self.pages, self.page_starts, self.numbers, self.lengths]
        return [self.absorbed, self.starts, *cache, *self._results(self.rank)]

    def merged(self, own: Sequence[Array], cached: Sequence[Array]) -> Array:
        """The two results as one, in float64, as `caches.latent_cache.merged` does it."""
        values = np.einsum("thr,hvr->thv", cached[0].astype(np.float64), self.up_values)
        largest = np.maximum(own[1], cached[1]).astype(np.float64)
        one, other = (np.exp2(logarithms - largest)[..., None] for logarithms in (own[1], cached[1]))
        both = (own[0] * one + values * other) / (one + other)
        marks = own[1][..., None]
        return np.where(marks == np.float32(ALONE), own[0], np.where(marks == np.float32(IN_CACHE), values, both))


def _attended(queries: Array, keys: Array, values: Array, scale: float) -> Array:
    """The last tokens of a text, each with all that are not behind it."""
    before = len(keys) - len(queries)
    results = []
    for place, query in enumerate(queries):
        seen = before + place + 1
        scores = np.einsum("hd,thd->ht", query, keys[:seen]) * scale
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        results.append(np.einsum("ht,thd->hd", weights / weights.sum(axis=1, keepdims=True), values[:seen]))
    return np.array(results).reshape(len(queries), *values.shape[1:])
