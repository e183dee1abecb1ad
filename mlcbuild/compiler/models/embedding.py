"""What makes a model one of embeddings: vectors of texts, in place of answers.

Words are MLC-LLM's, whose libraries and `mlc-chat-config.json` say this in `embedding_metadata`. A `config.json` may
have an object of that name, which ImportConfig puts there for models of sentence-transformers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mlcbuild.compiler.models.config import MAX_CONTEXT, ConfigReader

DECODER_FUNCTIONS = (
    "embed",
    "create_paged_kv_cache",
    *(f"{name}_to_last_hidden_states" for name in ("prefill", "decode", "batch_prefill", "batch_decode")),
)
"""The entry functions of a decoder that has no head."""
FIELD = "embedding_metadata"
_LENGTH = "max_seq_length"


class PoolingStrategy(enum.Enum):
    """Which vector stands for a text, of those of its tokens."""

    CLS = "cls"  # the first token's
    MEAN = "mean"  # the mean of all tokens'
    LAST = "last"  # the last token's


class EmbeddingModelType(enum.Enum):
    """How a model reads a text."""

    ENCODER = "encoder"  # each token sees all of it: one function, without a cache
    DECODER = "decoder"  # each token sees those before it


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingMetadata:
    """`normalize`: vectors are divided by their length (the root of the sum of squares)."""

    model_type: EmbeddingModelType
    pooling_strategy: PoolingStrategy
    normalize: bool = True

    @property
    def document(self) -> dict[str, object]:
        """The object in a library's metadata and in `mlc-chat-config.json`."""
        return {
            "model_type": self.model_type.value,
            "pooling_strategy": self.pooling_strategy.value,
            "normalize": self.normalize,
        }


def read_embedding(
    reader: ConfigReader, *, model_type: EmbeddingModelType, default: EmbeddingMetadata | None
) -> EmbeddingMetadata | None:
    """What a `config.json` says, or `default`. Raises StageError for an unknown strategy, and for a field that is not
    known there."""
    if not reader.has(FIELD):
        return default
    table = reader.table(FIELD)
    known = ("model_type", "pooling_strategy", "normalize", _LENGTH)
    for name in table.document:
        if name not in known:
            raise table.fail(name, f"is not known; known: {', '.join(known)}")
    if table.string("model_type", default=model_type.value) != model_type.value:
        told = "an encoder" if model_type is EmbeddingModelType.ENCODER else "a decoder"
        raise table.fail("model_type", f'is "{table.string("model_type")}"; this model is {told}')
    names = {strategy.value: strategy for strategy in PoolingStrategy}
    name = table.string("pooling_strategy")
    if name not in names:
        raise table.fail("pooling_strategy", f'is "{name}"; known: {", ".join(names)}')
    return EmbeddingMetadata(
        model_type=model_type,
        pooling_strategy=names[name],
        normalize=table.boolean("normalize", default=True),
    )


def read_length(reader: ConfigReader) -> int | None:
    """How many tokens of a text the model of a `config.json` is for, where that says so: a library's context by
    default."""
    if not reader.has(FIELD) or not reader.table(FIELD).has(_LENGTH):
        return None
    return reader.table(FIELD).integer(_LENGTH, low=1, high=MAX_CONTEXT)
