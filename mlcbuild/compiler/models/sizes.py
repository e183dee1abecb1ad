"""The sizes that a library is made for: they shape memory plans and configuration, never a kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrarySizes:
    """Sizes in tokens, but for `max_batch_size` (sequences) and `tensor_parallel_shards`.

    `context_window_size` is -1 where a sliding window bounds the cache instead; `sliding_window_size` is -1 where there
    is none.
    """

    context_window_size: int
    sliding_window_size: int
    attention_sink_size: int
    prefill_chunk_size: int
    max_batch_size: int
    tensor_parallel_shards: int
