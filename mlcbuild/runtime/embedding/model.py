"""A package of an embedding model, loaded: tokens in, vectors out."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.errors import UsageError
from mlcbuild.runtime.embedding.batching import batches
from mlcbuild.runtime.embedding.pooling import Array, Pooling
from mlcbuild.runtime.engine import LoadProgress, read_weights
from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.kv_cache import CacheSizes
from mlcbuild.runtime.machine import Machine
from mlcbuild.runtime.package import ModelPackage
from mlcbuild.runtime.sequence_states import SequenceStates

_UNBOUNDED = 1 << 30  # more tokens than any text has
_TOKENS_AT_A_TIME = 4096  # with more, matrices are read no less often, and hidden states take more memory


class EmbeddingModel:
    """Raises UsageError for a package that makes no embeddings, or does not fit together.

    `longest` is the length in tokens of the longest text that it takes.
    """

    def __init__(self, directory: Path, *, threads: int = 0, loaded: LoadProgress = lambda _done, _total: None) -> None:
        package = ModelPackage.open(directory)
        machine = Machine(package.library, threads=threads)
        metadata = json.loads(str(machine.entry("_metadata")()))
        self.pooling = Pooling.of(metadata)
        expected = tuple(ExpectedTensor.of(item) for item in metadata["params"])
        weights = read_weights(directory, expected, loaded=loaded)
        held = machine.array([machine.tensor(array) for array in weights])
        self.vocab_size = int(metadata["vocab_size"])
        self.longest = int(metadata["context_window_size"])
        chunk, texts = int(metadata["prefill_chunk_size"]), int(metadata["max_batch_size"])
        self._computed: _Forward
        if metadata["embedding_metadata"]["model_type"] == "encoder":
            self.longest = min(self.longest, chunk)
            self._computed = _Encoder(machine, held, texts=texts)
        else:
            sizes = CacheSizes(
                prefill_chunk=chunk,
                sliding_window=int(metadata["sliding_window_size"]),
                attention_sink=int(metadata["attention_sink_size"]),
                context_window=self.longest,
                kind=metadata["kv_state_kind"],
            )
            if not sizes.is_bounded:
                self.longest = _UNBOUNDED
            self._computed = _Decoder(machine, held, sizes)

    def vectors(self, texts: Sequence[Sequence[int]], *, done: Callable[[int], None] = lambda _count: None) -> Array:
        """Of texts as tokens, at least one and at most `longest` each: (texts, hidden) in float32. `done` is told how
        many are."""
        found: dict[int, Array] = {}
        for number, hidden in self._computed(texts):
            found[number] = self.pooling.vector(hidden)
            done(len(found))
        return np.stack([found[number] for number in range(len(texts))])


class _Forward(ABC):
    """Of texts as tokens, in any order: the number of each, and its hidden states (tokens, hidden)."""

    def __init__(self, machine: Machine, weights: Any) -> None:
        self.machine = machine
        self.weights = weights

    @abstractmethod
    def __call__(self, texts: Sequence[Sequence[int]]) -> Iterator[tuple[int, Array]]: ...


class _Encoder(_Forward):
    def __init__(self, machine: Machine, weights: Any, *, texts: int) -> None:
        super().__init__(machine, weights)
        self._most = texts
        self._prefill = machine.entry("prefill")

    def __call__(self, texts: Sequence[Sequence[int]]) -> Iterator[tuple[int, Array]]:
        lengths = [len(text) for text in texts]
        for batch in batches(lengths, most_texts=self._most, most_tokens=_TOKENS_AT_A_TIME):
            tokens = np.zeros((len(batch), lengths[batch[0]]), np.int32)
            mask = np.zeros_like(tokens)
            for row, number in enumerate(batch):
                tokens[row, : lengths[number]] = texts[number]
                mask[row, : lengths[number]] = 1
            hidden = self._prefill(self.machine.tensor(tokens), self.machine.tensor(mask), self.weights).numpy()
            for row, number in enumerate(batch):
                yield number, hidden[row, : lengths[number]]


class _Decoder(_Forward):
    """Each text alone, in pieces: its keys and values are kept no longer than it is computed."""

    def __init__(self, machine: Machine, weights: Any, sizes: CacheSizes) -> None:
        super().__init__(machine, weights)
        self._sizes = sizes
        self._embed = machine.entry("embed")
        self._prefill = machine.entry("prefill_to_last_hidden_states")

    def __call__(self, texts: Sequence[Sequence[int]]) -> Iterator[tuple[int, Array]]:
        longest = max((len(text) for text in texts), default=1)
        cache = SequenceStates(self.machine, self._sizes, sequences=1, tokens=self._sizes.held(longest))
        for number, text in enumerate(texts):
            cache.add(0)
            yield number, np.concatenate(list(self._pieces(cache, text)))
            cache.remove(0)

    def _pieces(self, cache: SequenceStates, text: Sequence[int]) -> Iterator[Array]:
        chunk = self._sizes.prefill_chunk
        for begin in range(0, len(text), chunk):
            piece = np.asarray(text[begin : begin + chunk], np.int32)
            embedded = self._embed(self.machine.tensor(piece), self.weights)
            rows = embedded._create_view((1, *embedded.shape))
            hidden = cache.forward([0], [len(piece)], partial(self._hidden, rows))
            yield np.asarray(hidden.numpy(), np.float32)[0]

    def _hidden(self, rows: Any, states: Sequence[Any]) -> Sequence[Any]:
        found: Sequence[Any] = self._prefill(rows, *states, self.weights)
        return found


def check_length(count: int, model: EmbeddingModel) -> None:
    """Raises UsageError for a text of more tokens than the model takes."""
    if count > model.longest:
        raise UsageError(
            f"the text has {count} tokens, and the model takes {model.longest}",
            advice=("shorten it, or cut it with --truncate",),
        )
