"""A library with its weights: tokens in, logits out, one sequence at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcbuild.errors import UsageError
from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.machine import Machine

Array = npt.NDArray[Any]

_PAGE_TOKENS = 16
_SEQUENCE = 0


class Model:
    """A library and its weights on the device that it was built for.

    `prefill` starts a sequence or goes on with it, `decode` adds one token; each returns the logits
    (vocabulary,) in float32 that follow its last token. `reset` forgets the sequence.
    """

    def __init__(
        self, library: Path, weights: Callable[[Sequence[ExpectedTensor]], Iterable[Array]], *, threads: int = 0
    ) -> None:
        """`weights` gives the arrays of the parameters that it is asked for, in order; one is in memory at a time.

        `threads` 0 is one for each core that this process may use.
        """
        self._machine = Machine(library, threads=threads)
        metadata = json.loads(str(self._machine.entry("_metadata")()))
        self.context_window_size = int(metadata["context_window_size"])
        self.prefill_chunk_size = int(metadata["prefill_chunk_size"])
        self.sliding_window_size = int(metadata["sliding_window_size"])
        self.attention_sink_size = int(metadata["attention_sink_size"])
        self._embed = self._machine.entry("embed")
        self._prefill = self._machine.entry("prefill")
        self._decode = self._machine.entry("decode")
        self._create_cache = self._machine.entry("create_tir_paged_kv_cache")
        self._begin = self._machine.function("vm.builtin.kv_state_begin_forward")
        self._end = self._machine.function("vm.builtin.kv_state_end_forward")
        self.parameters = tuple(ExpectedTensor.of(item) for item in metadata["params"])
        self._weights = self._machine.array([self._machine.tensor(array) for array in weights(self.parameters)])
        self._cache: Any = None
        self._capacity = 0
        self.length = 0  # tokens in the sequence

    def reset(self, *, capacity: int) -> None:
        """Begin an empty sequence that can grow to `capacity` tokens.

        Raises UsageError where that is more than the context window.
        """
        windowed = self.sliding_window_size > 0
        if not windowed and capacity > self.context_window_size:
            raise UsageError(
                f"{capacity} tokens do not fit the model's context of {self.context_window_size}",
                advice=("shorten the prompt, ask for fewer tokens, or override context_window_size",),
            )
        held = min(capacity, self.sliding_window_size + self.prefill_chunk_size) if windowed else capacity
        rounded = -(-max(held, 1) // _PAGE_TOKENS) * _PAGE_TOKENS
        shape = self._machine.shape
        self._cache = None  # the old one goes before the new one comes
        self._cache = self._create_cache(
            shape(1), shape(rounded), shape(self.prefill_chunk_size), shape(_PAGE_TOKENS), shape(int(windowed))
        )
        self._machine.function("vm.builtin.kv_state_add_sequence")(self._cache, _SEQUENCE)
        if windowed:
            self._machine.function("vm.builtin.attention_kv_cache_enable_sliding_window_for_seq")(
                self._cache, _SEQUENCE, self.sliding_window_size, self.attention_sink_size
            )
        self._capacity = capacity
        self.length = 0

    def prefill(self, tokens: Sequence[int]) -> Array:
        """Add at least one token, in pieces of at most `prefill_chunk_size`."""
        if not tokens:
            raise ValueError("a prefill without tokens")
        logits: Array | None = None
        for begin in range(0, len(tokens), self.prefill_chunk_size):
            piece = tokens[begin : begin + self.prefill_chunk_size]
            logits = self._forward(self._prefill, piece, wants_logits=begin + len(piece) == len(tokens))
        assert logits is not None
        return logits

    def decode(self, token: int) -> Array:
        """Add one token."""
        logits = self._forward(self._decode, [token], wants_logits=True)
        assert logits is not None
        return logits

    def greedy_tokens(self, tokens: Sequence[int], count: int) -> list[int]:
        """The `count` likeliest next tokens after `tokens`, each given those before it; no token ends it."""
        self.reset(capacity=len(tokens) + count)
        chosen = [int(np.argmax(self.prefill(tokens)))]
        while len(chosen) < count:
            chosen.append(int(np.argmax(self.decode(chosen[-1]))))
        return chosen

    def _forward(self, entry: Any, tokens: Sequence[int], *, wants_logits: bool) -> Array | None:
        if self.length + len(tokens) > self._capacity:
            raise ValueError(f"a sequence of more than {self._capacity} tokens")
        embedded = self._embed(self._machine.tensor(np.asarray(tokens, np.int32)), self._weights)
        count, hidden = embedded.shape
        batch = embedded._create_view((1, count, hidden))
        self._begin(self._cache, self._machine.shape(_SEQUENCE), self._machine.shape(len(tokens)))
        logits, self._cache = entry(batch, self._cache, self._weights)
        self._end(self._cache)
        self.length += len(tokens)
        return np.asarray(logits.numpy()).reshape(-1) if wants_logits else None
