"""ALiBi as its paper has it, and in attention of transformers, which has no class of a Baichuan of 13 billion
parameters."""

from __future__ import annotations

import math
from typing import Any

NAME = "eager_with_alibi"


def register() -> None:
    """Give transformers attention of this name: its own, with ALiBi's biases in the mask."""
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask
    from transformers.models.llama.modeling_llama import eager_attention_forward

    def attend(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **others: Any) -> Any:
        slopes = torch.tensor(alibi_slopes(query.shape[1]), dtype=query.dtype)
        keys = torch.arange(key.shape[2])
        back = keys[-query.shape[2] :, None] - keys[None]
        biased = attention_mask - slopes[:, None, None] * back
        return eager_attention_forward(module, query, key, value, biased, **others)

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, eager_mask)


def alibi_slopes(heads: int) -> list[float]:
    """As the paper's own code has them: a geometric sequence for a power of two; for another number that of the next
    lower one, and every second of the sequence for twice as many."""

    def sequence(count: int) -> list[float]:
        first = 2 ** (-(2 ** -(math.log2(count) - 3)))
        return [first ** (number + 1) for number in range(count)]

    lower = 2 ** math.floor(math.log2(heads))
    return sequence(lower) + sequence(2 * lower)[0::2][: heads - lower]
