"""A library with its weights: tokens in, logits out, one sequence at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.errors import UsageError
from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.kv_cache import CacheSizes
from mlcbuild.runtime.logits import Array, Logits
from mlcbuild.runtime.machine import Machine
from mlcbuild.runtime.sequence_states import SequenceStates
from mlcbuild.runtime.token_chooser import ChosenTokens

_SEQUENCE = 0


class Model:
    """A library and its weights on the device that it was built for.

    `prefill` starts a sequence or goes on with it, `decode` adds one token; each returns the logits
    (vocabulary,) in float32 that follow its last token. `reset` forgets the sequence. Several sequences together are
    a `SequenceBatch`, which has states of its own.
    """

    def __init__(
        self, library: Path, weights: Callable[[Sequence[ExpectedTensor]], Iterable[Array]], *, threads: int = 0
    ) -> None:
        """`weights` gives the arrays of the parameters that it is asked for, in order; one is in memory at a time.

        `threads` 0 is one for each core that is free (`threads.free_cores`).
        """
        self.machine = Machine(library, threads=threads)
        metadata = json.loads(str(self.machine.entry("_metadata")()))
        self.context_window_size = int(metadata["context_window_size"])
        self.prefill_chunk_size = int(metadata["prefill_chunk_size"])
        self.sliding_window_size = int(metadata["sliding_window_size"])
        self.attention_sink_size = int(metadata["attention_sink_size"])
        self.max_batch_size = int(metadata["max_batch_size"])
        self.active_vocab_size = int(metadata["active_vocab_size"])  # the logits behind it are padding
        self.cache_sizes = CacheSizes(
            prefill_chunk=self.prefill_chunk_size,
            sliding_window=self.sliding_window_size,
            attention_sink=self.attention_sink_size,
            context_window=self.context_window_size,
            kind=metadata["kv_state_kind"],
        )
        self._embed = self.machine.entry("embed")
        self._prefill = self.machine.entry("prefill")
        self._decode = self.machine.entry("decode")
        self.parameters = tuple(ExpectedTensor.of(item) for item in metadata["params"])
        self._weights = self.machine.array([self.machine.tensor(array) for array in weights(self.parameters)])
        self._states: SequenceStates | None = None
        self._capacity = 0
        self._tokens: list[int] = []
        self._ahead: tuple[ChosenTokens, Any] | None = None  # the token that is to come next, and its embedding

    @property
    def length(self) -> int:
        """Tokens in the sequence."""
        return len(self._tokens)

    def has_function(self, name: str) -> bool:
        """Whether the library has an entry function of that name."""
        try:
            self.machine.entry(name)
        except UsageError:
            return False
        return True

    def reset(self, *, capacity: int) -> None:
        """Begin an empty sequence that can grow to `capacity` tokens.

        Raises UsageError where that is more than the context window.
        """
        if self.cache_sizes.is_bounded and capacity > self.context_window_size:
            raise UsageError(
                f"{capacity} tokens do not fit the model's context of {self.context_window_size}",
                advice=("shorten the prompt, ask for fewer tokens, or override context_window_size",),
            )
        self._ahead = None
        self._states = None  # the old ones go before the new ones come
        self._states = self.new_states(sequences=1, tokens=self.cache_sizes.held(capacity))
        self._states.add(_SEQUENCE)
        self._capacity = capacity
        self._tokens = []

    def new_states(self, *, sequences: int, tokens: int) -> SequenceStates:
        """Room for `sequences` sequences that hold `tokens` tokens in all."""
        return SequenceStates(self.machine, self.cache_sizes, sequences=sequences, tokens=tokens)

    def keep(self, tokens: Sequence[int]) -> int:
        """Keep of the sequence what `tokens` begin with, less than all of them, and forget the rest. Returns the
        number of tokens kept: the others are to be added. A sliding window, and recurrent states, keep all that they
        have, or nothing."""
        assert self._states is not None
        kept = 0
        for have, wanted in zip(self._tokens, tokens[:-1], strict=False):
            if have != wanted:
                break
            kept += 1
        if kept < self.length:
            if kept == 0 or not self.cache_sizes.can_forget:
                self._states.remove(_SEQUENCE)
                self._states.add(_SEQUENCE)
                kept = 0
            else:
                self._states.forget_last(_SEQUENCE, self.length - kept)
            del self._tokens[kept:]
        return kept

    def prefill(self, tokens: Sequence[int]) -> Array:
        """Add at least one token, in pieces of at most `prefill_chunk_size`."""
        *_, logits = self.prefill_in_pieces(tokens)
        return logits

    def prefill_in_pieces(self, tokens: Sequence[int], *, every_token: bool = False) -> Iterator[Array]:
        """`passes` with logits in host memory: (vocabulary,) after each, or (n, vocabulary) with `every_token`."""
        for logits in self.passes(tokens, every_token=every_token):
            yield logits.numpy() if every_token else logits.numpy()[0]

    def passes(self, tokens: Sequence[int], *, every_token: bool = False) -> Iterator[Logits]:
        """Add at least one token; after each piece of `prefill_chunk_size` there is a chance to stop. It gives the
        logits after the piece, or after `every_token` of it."""
        if not tokens:
            raise ValueError("a prefill without tokens")
        entry = self.machine.entry("batch_verify") if every_token else self._prefill
        for begin in range(0, len(tokens), self.prefill_chunk_size):
            yield self._add(entry, tokens[begin : begin + self.prefill_chunk_size], every_token=every_token)

    def decode(self, token: int) -> Array:
        """Add one token."""
        return self.decoding_pass(token).numpy().reshape(-1)

    def decoding_pass(self, token: int) -> Logits:
        """Add one token: a row of logits."""
        return self._add(self._decode, [token])

    def look_ahead(self, chosen: ChosenTokens) -> None:
        """Prepare the pass of the one token that has been chosen on the device, which may not be known yet: the host
        has the time for that while the device computes. `decoding_pass` of the token comes sooner then; any other pass
        is as it would be without."""
        if chosen.on_device is not None and self._states is not None and self.length < self._capacity:
            self._ahead = chosen, self.embeddings_of(chosen.on_device)
            self._states.begin_next([_SEQUENCE])

    def greedy_tokens(self, tokens: Sequence[int], count: int) -> list[int]:
        """The `count` likeliest next tokens after `tokens`, each given those before it; no token ends it."""
        self.reset(capacity=len(tokens) + count)
        chosen = [int(np.argmax(self.prefill(tokens)))]
        while len(chosen) < count:
            chosen.append(int(np.argmax(self.decode(chosen[-1]))))
        return chosen

    def embeddings(self, tokens: Sequence[int], *, rows: int = 1) -> Any:
        """Embeddings (rows, n / rows, hidden) of n tokens, on the device."""
        return self.embeddings_of(self.machine.tensor(np.asarray(tokens, np.int32)), rows=rows)

    def embeddings_of(self, tokens: Any, *, rows: int = 1) -> Any:
        """`embeddings` of a tensor (n,) int32 of tokens on the device."""
        embedded = self._embed(tokens, self._weights)
        count, hidden = embedded.shape
        return embedded._create_view((rows, count // rows, hidden))

    def logits_of(self, name: str, states: Sequence[Any], embedded: Any, *positions: Array) -> Sequence[Any]:
        """The entry function of that name, called with all weights: logits on the device, and the states."""
        given = [self.machine.tensor(array) for array in positions]
        results: Sequence[Any] = self.machine.entry(name)(embedded, *given, *states, self._weights)
        return results

    def _add(self, entry: Any, tokens: Sequence[int], *, every_token: bool = False) -> Logits:
        if self._states is None or self.length + len(tokens) > self._capacity:
            raise ValueError(f"a sequence of more than {self._capacity} tokens")
        ahead, self._ahead = self._ahead, None
        if ahead is not None and entry is self._decode and ahead[0].numbers() == list(tokens):
            embedded = ahead[1]
        else:
            embedded = self.embeddings(tokens)
        logits = self._states.forward(
            [_SEQUENCE], [len(tokens)], lambda states: entry(embedded, *states, self._weights)
        )
        self._tokens += tokens
        return Logits(self.machine, logits, rows=len(tokens) if every_token else 1)
