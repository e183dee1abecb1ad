"""Multi-head latent attention (arXiv:2405.04434) as values.

A token has one latent vector, of which every head makes its keys and values, and one rotated part that the keys of all
heads share. The KV cache keeps these two alone. A query can meet what is kept without making keys and values of it,
because a head's matrix can be multiplied by the query in their place ("absorbed").
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentConfig:
    """Numbers of elements: of the latent vector that keys and values are made of, and of that of queries (0 where
    queries are made of the hidden state); of the parts of a head of queries and keys that are not rotated and that
    are, in this order; and of a head of values. Latent vectors are normed, with this epsilon.

    Raises ValueError for numbers that cannot be.
    """

    rank: int
    query_rank: int
    plain_dim: int
    rotated_dim: int
    value_dim: int
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        if min(self.rank, self.plain_dim, self.rotated_dim, self.value_dim) < 1 or self.query_rank < 0:
            raise ValueError(f"no latent attention: {self}")

    @property
    def kept_dim(self) -> int:
        """What the cache keeps of a token: the latent vector and the rotated part of keys."""
        return self.rank + self.rotated_dim


ALONE = 3e38
"""The logarithm of a token whose sequence has no text in the cache: its own pass is all there is."""

IN_CACHE = -3e38
"""That of a token which the cache has already: the pass has one token of each sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentNames:
    """Modules by their path below a layer, which is that of Hugging Face too. The last two are parameters."""

    query: str = "self_attn.q_proj"
    query_down: str = "self_attn.q_a_proj"
    query_norm: str = "self_attn.q_a_layernorm"
    query_up: str = "self_attn.q_b_proj"
    down: str = "self_attn.kv_a_proj_with_mqa"
    norm: str = "self_attn.kv_a_layernorm"
    up: str = "self_attn.kv_b_proj"
    absorbed_keys: str = "self_attn.w_uk"
    absorbed_values: str = "self_attn.w_uv"


LATENT_NAMES = LatentNames()
