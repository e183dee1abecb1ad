"""Requests for embeddings in, results out in the same order: many texts at a time, of one request or of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mlcbuild.errors import UsageError
from mlcbuild.runtime.batch.envelope import RejectedRequest
from mlcbuild.runtime.embedding.model import EmbeddingModel, check_length
from mlcbuild.runtime.embedding.pooling import Array
from mlcbuild.runtime.embedding.request import EmbeddingRequest, Text
from mlcbuild.runtime.tokenizer import PackageTokenizer

_TEXTS_AT_A_TIME = 512  # that are sorted by length together


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingResult:
    """`vectors` (texts, hidden) in float32, and how many `tokens` each text has."""

    request: EmbeddingRequest
    vectors: Array
    tokens: tuple[int, ...]


class Embedder:
    """`embedded` tells, while results are iterated, how many texts are done."""

    def __init__(
        self,
        model: EmbeddingModel,
        tokenizer: PackageTokenizer,
        *,
        truncate: bool,
        done: Callable[[int], None] = lambda _count: None,
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._truncate = truncate
        self._done = done
        self.embedded = 0

    def encode(self, text: Text) -> list[int]:
        """The tokens of a text. Raises UsageError for one that is too long, where it may not be cut, and for tokens
        that the model does not have."""
        longest = self._model.longest
        if isinstance(text, str):
            tokens = self._tokenizer.encode_whole(text, at_most=longest if self._truncate else None)
        else:
            tokens = list(text)
            if beyond := [token for token in tokens if token >= self._model.vocab_size]:
                raise UsageError(f"the text has token {beyond[0]}; tokens are 0 to {self._model.vocab_size - 1}")
            tokens = tokens[:longest] if self._truncate else tokens
        check_length(len(tokens), self._model)
        return tokens

    def vectors(self, texts: Sequence[Sequence[int]]) -> Array:
        """Of texts as tokens: (texts, hidden) in float32."""
        before = self.embedded
        found = self._model.vectors(texts, done=lambda count: self._done(before + count))
        self.embedded += len(texts)
        return found

    def results(
        self, requests: Iterable[EmbeddingRequest | RejectedRequest]
    ) -> Iterator[EmbeddingResult | RejectedRequest]:
        """One of each request, in their order."""
        waiting: list[tuple[EmbeddingRequest, list[list[int]]] | RejectedRequest] = []
        texts = 0
        for request in requests:
            prepared = self._prepared(request)
            waiting.append(prepared)
            texts += 0 if isinstance(prepared, RejectedRequest) else len(prepared[1])
            if texts >= _TEXTS_AT_A_TIME:
                yield from self._answered(waiting)
                waiting, texts = [], 0
        yield from self._answered(waiting)

    def _prepared(
        self, request: EmbeddingRequest | RejectedRequest
    ) -> tuple[EmbeddingRequest, list[list[int]]] | RejectedRequest:
        if isinstance(request, RejectedRequest):
            return request
        try:
            return request, [self.encode(text) for text in request.texts]
        except UsageError as error:
            return RejectedRequest(number=request.number, custom_id=request.custom_id, message=str(error))

    def _answered(
        self, waiting: Sequence[tuple[EmbeddingRequest, list[list[int]]] | RejectedRequest]
    ) -> Iterator[EmbeddingResult | RejectedRequest]:
        texts = [text for one in waiting if not isinstance(one, RejectedRequest) for text in one[1]]
        found = self.vectors(texts) if texts else np.zeros((0, 0), np.float32)
        begin = 0
        for one in waiting:
            if isinstance(one, RejectedRequest):
                yield one
                continue
            request, own = one
            end = begin + len(own)
            yield EmbeddingResult(request=request, vectors=found[begin:end], tokens=tuple(map(len, own)))
            begin = end
