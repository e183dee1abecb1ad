"""Sequences that a library computes together, by its batch functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mlcbuild.runtime.model import Array, Model


class SequenceBatch:
    """A cache of its own for sequences of one model, which are known by numbers.

    All logits are float32; rows are in the order of the sequences that were given.
    """

    def __init__(self, model: Model, *, sequences: int, tokens: int) -> None:
        """Room for so many sequences, and for so many tokens in all."""
        self._model = model
        self._cache = model.new_cache(sequences=sequences, tokens=tokens)

    def add(self, sequence: int) -> None:
        """Begin an empty sequence."""
        self._cache.add(sequence)

    def remove(self, sequence: int) -> None:
        """Forget a sequence."""
        self._cache.remove(sequence)

    def prefill(self, tokens: Mapping[int, Sequence[int]]) -> Array:
        """Add tokens to each sequence, at least one, at most `prefill_chunk_size` in all. Logits after the last of
        each: (sequences, vocabulary)."""
        ends = np.cumsum([len(each) for each in tokens.values()]) - 1
        logits: Array = self._forward("batch_prefill", tokens, ends.astype(np.int32))[0]
        return logits

    def prefill_with_every_logit(self, tokens: Mapping[int, Sequence[int]]) -> list[Array]:
        """The same with the logits after each token: of each sequence (tokens, vocabulary)."""
        logits = self._forward("batch_verify", tokens)[0]
        return np.split(logits, np.cumsum([len(each) for each in tokens.values()])[:-1])

    def decode(self, tokens: Mapping[int, int]) -> Array:
        """Add a token to each sequence. Logits (sequences, vocabulary)."""
        logits = self._forward("batch_decode", {sequence: (token,) for sequence, token in tokens.items()}, by_row=True)
        return logits[:, 0]

    def _forward(
        self, name: str, tokens: Mapping[int, Sequence[int]], *positions: Array, by_row: bool = False
    ) -> Array:
        flat = [token for each in tokens.values() for token in each]
        embedded = self._model.embeddings(flat, rows=len(tokens) if by_row else 1)
        logits = self._cache.forward(
            list(tokens),
            [len(each) for each in tokens.values()],
            lambda state: self._model.logits_of(name, state, embedded, *positions),
        )
        return np.asarray(logits.numpy())
