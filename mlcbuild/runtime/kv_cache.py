"""The paged KV cache of a library: keys and values of sequences, which are known by numbers that the caller gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlcbuild.runtime.machine import Machine

PAGE_TOKENS = 16


def pages_of(tokens: int) -> int:
    """How many pages a sequence of that many tokens takes."""
    return -(-tokens // PAGE_TOKENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSizes:
    """What a library says of its cache, in tokens. `sliding_window` is not positive where every token stays visible."""

    prefill_chunk: int
    sliding_window: int
    attention_sink: int

    @property
    def slides(self) -> bool:
        return self.sliding_window > 0

    def held(self, tokens: int) -> int:
        """The most tokens of a sequence of that length that the cache holds at a time."""
        return min(tokens, self.sliding_window + self.prefill_chunk) if self.slides else tokens


def sequence_pages(sizes: CacheSizes, tokens: int) -> int:
    """How many pages a sequence of that many tokens takes at a time, beside others. A window that slides lies across
    the boundaries of pages, at its sinks and at its beginning."""
    return pages_of(sizes.held(tokens)) + (2 if sizes.slides else 0)


class KVCache:
    """Room for `sequences` sequences with `tokens` tokens in all, on the library's device, in pages of
    `PAGE_TOKENS`."""

    def __init__(self, machine: Machine, sizes: CacheSizes, *, sequences: int, tokens: int) -> None:
        self._machine = machine
        self._sizes = sizes
        self._begin = machine.function("vm.builtin.kv_state_begin_forward")
        self._end = machine.function("vm.builtin.kv_state_end_forward")
        shape = machine.shape
        self._state = machine.entry("create_tir_paged_kv_cache")(
            shape(sequences),
            shape(max(pages_of(tokens), 1) * PAGE_TOKENS),
            shape(sizes.prefill_chunk),
            shape(PAGE_TOKENS),
            shape(int(sizes.slides)),
        )

    def add(self, sequence: int) -> None:
        """Begin an empty sequence."""
        self._machine.function("vm.builtin.kv_state_add_sequence")(self._state, sequence)
        if self._sizes.slides:
            self._machine.function("vm.builtin.attention_kv_cache_enable_sliding_window_for_seq")(
                self._state, sequence, self._sizes.sliding_window, self._sizes.attention_sink
            )

    def remove(self, sequence: int) -> None:
        """Forget a sequence and free its pages."""
        self._machine.function("vm.builtin.kv_state_remove_sequence")(self._state, sequence)

    def forget_last(self, sequence: int, tokens: int) -> None:
        """Take the last tokens of a sequence back, not all of them; a cache with a sliding window cannot."""
        self._machine.function("vm.builtin.kv_state_popn")(self._state, sequence, tokens)

    def forward(self, sequences: Sequence[int], lengths: Sequence[int], run: Callable[[Any], tuple[Any, Any]]) -> Any:
        """What `run` computes of the cache's state while so many tokens are added to each sequence. It returns its
        result and the state."""
        self._begin(self._state, self._machine.shape(*sequences), self._machine.shape(*lengths))
        result, self._state = run(self._state)
        self._end(self._state)
        return result
