"""A request of a batch for embeddings (`batch.envelope` has the form of lines), and its result: OpenAI's
`/v1/embeddings`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcbuild.errors import UsageError
from mlcbuild.runtime.batch.envelope import Envelope, RejectedRequest, parse_line, shown
from mlcbuild.runtime.batch.result import response_line
from mlcbuild.runtime.embedding.pooling import Array
from mlcbuild.suggestions import known_values

URL = "/v1/embeddings"
_FIELDS = ("input", "model", "encoding_format")
_WITHOUT_EFFECT = ("user", "metadata")

Text = str | tuple[int, ...]
"""A text, or its tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRequest:
    """`number` counts lines from 1; `texts` are one or several."""

    number: int
    custom_id: str | None
    model: str
    texts: tuple[Text, ...]


def parse_embedding_request(line: bytes, number: int) -> EmbeddingRequest | RejectedRequest:
    """The request of a line, which says of itself what is wrong with it."""

    def parse(envelope: Envelope) -> EmbeddingRequest:
        body = envelope.body
        for name in body:
            if name not in _FIELDS and name not in _WITHOUT_EFFECT:
                raise UsageError(f'"{name}" is not supported', advice=(known_values(name, _FIELDS),))
        if envelope.url not in (None, URL):
            raise UsageError(f'"url" is {shown(envelope.url)}; it has to be "{URL}"')
        if body.get("encoding_format", "float") != "float":
            raise UsageError(f'"encoding_format" is {shown(body["encoding_format"])}; it has to be "float"')
        model = body.get("model", "")
        if not isinstance(model, str):
            raise UsageError(f'"model" is {shown(model)}; it has to be a text')
        return EmbeddingRequest(
            number=number, custom_id=envelope.custom_id, model=model, texts=_texts(body.get("input"))
        )

    return parse_line(line, number, parse)


def _texts(value: object) -> tuple[Text, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value:
        if _are_tokens(value):
            return (tuple(value),)
        if all(isinstance(text, str) for text in value):
            return tuple(value)
        if all(isinstance(text, list) and text and _are_tokens(text) for text in value):
            return tuple(tuple(text) for text in value)
    raise UsageError(f'"input" is {shown(value)}; it has to be a text or its token ids, or a list of such')


def _are_tokens(value: list[Any]) -> bool:
    return all(type(token) is int and token >= 0 for token in value)


def embedding_line(request: EmbeddingRequest, vectors: Array, *, tokens: Sequence[int]) -> str:
    """The result of a request: vectors (texts, hidden) in float32, and how many tokens each text has."""
    body = {
        "object": "list",
        "data": [vector_document(vector, index=index) for index, vector in enumerate(vectors)],
        "model": request.model,
        "usage": {"prompt_tokens": sum(tokens), "total_tokens": sum(tokens)},
    }
    return response_line(request.number, request.custom_id, body)


def vector_document(vector: Array, *, index: int) -> dict[str, object]:
    """A vector as OpenAI's API has it; each number is the shortest decimal of its float32."""
    return {"object": "embedding", "index": index, "embedding": [float(str(number)) for number in vector]}
