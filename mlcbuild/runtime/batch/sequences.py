"""Sequences that a library computes together, by its batch functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mlcbuild.runtime.kv_cache import PAGE_TOKENS
from mlcbuild.runtime.logits import Array, Logits
from mlcbuild.runtime.model import Model
from mlcbuild.runtime.token_chooser import ChosenTokens


class SequenceBatch:
    """States of its own for sequences of one model, which are known by numbers from 0.

    All logits are float32; rows are in the order of the sequences that were given. Kernels have a way of their own for
    a row that is alone, which sums in another order. So no row is: beside one that would be, another is computed that
    nobody reads. On a CPU the logits of a sequence are then the same, bit for bit, whatever is computed beside it; but
    of a model with recurrent layers, a sequence whose tokens fill a chunk is alone.
    """

    def __init__(self, model: Model, *, sequences: int, tokens: int) -> None:
        """Room for so many sequences, and for so many tokens in all."""
        self._model = model
        self._spare = sequences
        self._ahead: tuple[tuple[int, ...], ChosenTokens, Any] | None = None  # sequences, their tokens, the embeddings
        self._states = model.new_states(sequences=sequences + 1, tokens=tokens + PAGE_TOKENS)

    def add(self, sequence: int) -> None:
        """Begin an empty sequence."""
        self._states.add(sequence)

    def remove(self, sequence: int) -> None:
        """Forget a sequence."""
        self._states.remove(sequence)

    def prefill(self, tokens: Mapping[int, Sequence[int]]) -> Array:
        """`prefilling_pass` with its logits in host memory: (sequences, vocabulary)."""
        return self.prefilling_pass(tokens).numpy()

    def prefilling_pass(self, tokens: Mapping[int, Sequence[int]]) -> Logits:
        """Add tokens to each sequence, at least one, at most `prefill_chunk_size` in all: a row of logits after the
        last of each."""
        with self._beside_another(tokens) as given:
            ends = np.cumsum([len(each) for each in given.values()]) - 1
            if len(ends) == 1 and not self._model.cache_sizes.is_recurrent:
                ends = np.repeat(ends, 2)
            logits = self._forward("batch_prefill", given, ends.astype(np.int32))
        return Logits(self._model.machine, logits, rows=len(tokens))

    def prefill_with_every_logit(self, tokens: Mapping[int, Sequence[int]]) -> list[Array]:
        """`every_token_pass` with its logits in host memory: of each sequence (tokens, vocabulary)."""
        return [logits.numpy() for logits in self.every_token_pass(tokens)]

    def every_token_pass(self, tokens: Mapping[int, Sequence[int]]) -> Iterator[Logits]:
        """`prefilling_pass` with logits after each token: of each sequence as many rows as it has tokens. Those of one
        are to be read before the next are asked for."""
        machine = self._model.machine
        if self._model.cache_sizes.is_recurrent:  # the function takes one sequence: it is not told where others begin
            for sequence, each in tokens.items():
                yield Logits(machine, self._forward("batch_verify", {sequence: each}), rows=len(each))
            return
        with self._beside_another(tokens) as given:
            together = self._forward("batch_verify", given)
        first = 0
        for each in tokens.values():
            yield Logits(machine, together, rows=len(each), first=first)
            first += len(each)

    def decode(self, tokens: Mapping[int, int]) -> Array:
        """`decoding_pass` with its logits in host memory: (sequences, vocabulary)."""
        return self.decoding_pass(tokens).numpy()

    def decoding_pass(self, tokens: Mapping[int, int]) -> Logits:
        """Add a token to each sequence: a row of logits for each."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and dict(zip(ahead[0], ahead[1].numbers(), strict=True)) == dict(tokens):
            logits = self._logits("batch_decode", ahead[0], [1] * len(ahead[0]), ahead[2])
        else:
            with self._beside_another({sequence: (token,) for sequence, token in tokens.items()}) as given:
                logits = self._forward("batch_decode", given, by_row=True)
        return Logits(self._model.machine, logits, rows=len(tokens))

    def look_ahead(self, sequences: Sequence[int], chosen: ChosenTokens) -> None:
        """Prepare the pass of the tokens of these sequences that have been chosen on the device, as
        `Model.look_ahead` does. One sequence has another beside it, which comes with its pass."""
        if chosen.on_device is not None and len(sequences) > 1 and self._model.cache_sizes.can_forget:
            embedded = self._model.embeddings_of(chosen.on_device, rows=len(sequences))
            self._ahead = tuple(sequences), chosen, embedded
            self._states.begin_next(sequences)

    @contextmanager
    def _beside_another(self, tokens: Mapping[int, Sequence[int]]) -> Iterator[Mapping[int, Sequence[int]]]:
        """The tokens, and where there is one alone another one of a sequence that ends with the block. Recurrent layers
        take the ends of tokens for those of sequences, so that a sequence has another one beside it."""
        total = sum(len(each) for each in tokens.values())
        rows = len(tokens) if self._model.cache_sizes.is_recurrent else total
        if rows > 1 or total == self._model.prefill_chunk_size:
            yield tokens
            return
        self._states.add(self._spare)
        yield {**tokens, self._spare: (0,)}
        self._states.remove(self._spare)

    def _forward(self, name: str, tokens: Mapping[int, Sequence[int]], *positions: Array, by_row: bool = False) -> Any:
        """Logits on the device."""
        flat = [token for each in tokens.values() for token in each]
        embedded = self._model.embeddings(flat, rows=len(tokens) if by_row else 1)
        return self._logits(name, list(tokens), [len(each) for each in tokens.values()], embedded, *positions)

    def _logits(
        self, name: str, sequences: Sequence[int], lengths: Sequence[int], embedded: Any, *positions: Array
    ) -> Any:
        return self._states.forward(
            sequences, lengths, lambda states: self._model.logits_of(name, states, embedded, *positions)
        )
