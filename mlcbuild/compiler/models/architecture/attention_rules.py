"""What attention does besides softmax(scale · Q Kᵀ) V, for kernels of the KV cache to compute.

The rules are those of a whole model, because its layers share the kernels. A layer that sees less than the others says
so in the one number that each layer hands to the kernels by itself: its scale is negative.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRules:
    """`window` is for layers that do not see all of the text: a token sees so many tokens, itself among them; with
    `chunked`, those of its own piece of the text, which is cut into pieces of so many tokens. 0 where no layer has one.

    A score s becomes `soft_cap` tanh(s / `soft_cap`) before the softmax; 0 for scores as they are. With `sinks`, each
    query head has a score of its own that belongs to no key, in the denominator of the softmax alone: the head behind
    the last query head of a key-value head holds those of the group, as its first elements. With `alibi`, the score of
    a key that is d tokens back is less by d times the head's slope (arXiv 2108.12409), and there are no other rules.
    Raises ValueError for numbers that say nothing.
    """

    window: int = 0
    chunked: bool = False
    soft_cap: float = 0.0
    sinks: bool = False
    alibi: bool = False

    def __post_init__(self) -> None:
        if self.window < 0 or self.soft_cap < 0 or (self.chunked and not self.window):
            raise ValueError(f"no rules of attention: {self}")
        if self.alibi and (self.window or self.soft_cap or self.sinks):
            raise ValueError(f"no kernel computes these rules of attention together: {self}")


NO_RULES = AttentionRules()
"""Attention is a softmax over the scores of all keys that are not behind a query."""
