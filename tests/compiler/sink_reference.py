"""transformers' attention with a sink, which it does not have itself. Needs torch alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from mlcbuild.compiler.models.architecture.window import SlidingWindow


@contextlib.contextmanager
def attention_with(window: SlidingWindow, *, theta: float = 10000.0) -> Iterator[None]:
    """Mistrals whose attention is "eager" attend under the window, with its sink, inside the block. `theta` is the base
    of their rotary embeddings, which have no scaling."""
    if window.sink == 0:
        yield
        return
    from transformers.models.mistral import modeling_mistral

    with mock.patch.object(modeling_mistral, "eager_attention_forward", _attention(window, theta)):
        yield


def _attention(window: SlidingWindow, theta: float) -> Callable[..., tuple[Any, None]]:
    """Attention that is given rotated queries and keys. A query that meets the sink is turned back to the last position
    that sees all of the text."""
    import torch

    def attend(
        _module: Any, query: Any, key: Any, value: Any, _mask: Any, scaling: float, **_: object
    ) -> tuple[Any, None]:
        tokens, half, device = query.shape[2], query.shape[3] // 2, query.device
        place = torch.arange(tokens, device=device)
        distance = place[:, None] - place[None]
        near = (distance >= 0) & (distance < window.size - window.sink)
        in_sink = (place[None] < window.sink) & (distance >= 0) & ~near
        beyond = (place - (window.size - 1)).clamp(min=0)
        angles = beyond[:, None] * theta ** (-torch.arange(half, device=device) / half)
        low, high = query[..., :half].float(), query[..., half:].float()
        back = torch.cat([low * angles.cos() + high * angles.sin(), high * angles.cos() - low * angles.sin()], dim=-1)
        group = query.shape[1] // key.shape[1]
        keys, values = (each.repeat_interleave(group, dim=1) for each in (key, value))
        turned = keys.transpose(2, 3)
        scores = torch.where(in_sink, back.to(query.dtype) @ turned, query @ turned).float() * scaling
        scores = scores.masked_fill(~(near | in_sink), -torch.inf)
        return (scores.softmax(dim=-1).to(query.dtype) @ values).transpose(1, 2), None

    return attend
