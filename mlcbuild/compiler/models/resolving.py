"""A `config.json` by its family: which one reads it, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mlcbuild.compiler import json_values
from mlcbuild.compiler.models.checkpoints.parameters import ParameterList
from mlcbuild.compiler.models.config import ConfigReader, parse_document
from mlcbuild.compiler.models.description import ModelDescription
from mlcbuild.compiler.models.embedding import FIELD, EmbeddingModelType, read_embedding, read_length
from mlcbuild.compiler.models.family import Family
from mlcbuild.compiler.models.headless import parameters_without_head, without_head
from mlcbuild.compiler.models.sizes import Overrides, library_sizes
from mlcbuild.compiler.weights.checkpoint_format import AnyFormat, quantized_checkpoint
from mlcbuild.errors import StageError
from mlcbuild.suggestions import known_values

AnyFamily = Family[Any]


def resolve(
    document: Mapping[str, object],
    families: Iterable[AnyFamily],
    formats: Iterable[AnyFormat],
    *,
    where: str = "config.json",
) -> tuple[ModelDescription, ParameterList]:
    """The model that a `config.json` describes, and its parameters. Raises StageError for a model type of no family,
    for weights that are quantized in none of the formats, and for fields that the family or the format refuses; `where`
    names the file."""
    reader = ConfigReader(document, where)
    model_type = reader.string("model_type")
    by_type = {name: family for family in families for name in family.model_types}
    if model_type not in by_type:
        raise StageError(
            f'{where}: the field "model_type" is "{model_type}", which is not supported',
            advice=(known_values(model_type, sorted(by_type)),),
        )
    family = by_type[model_type]
    quantized = quantized_checkpoint(reader, tuple(formats), other_methods=family.quantized_checkpoints)
    found = family.resolve(without_head(reader))
    limits = replace(found.limits, text_length=read_length(reader))
    kind = EmbeddingModelType.ENCODER if limits.is_encoder else EmbeddingModelType.DECODER
    embedding = read_embedding(reader, model_type=kind, default=found.embedding)
    kept = found.kv_state_kind or family.kv_state_kind
    model = ModelDescription(
        family=family.name,
        model_type=model_type,
        kv_state_kind=kept,
        vocab_size=found.vocab_size,
        layers=found.layers,
        limits=limits,
        sizes=library_sizes(limits, Overrides(), model_type=model_type),
        chat_config=found.chat_config,
        configuration=json_values.encode(found.configuration),
        embedding=embedding,
    )
    is_decoder = embedding is not None and kind is EmbeddingModelType.DECODER
    if is_decoder and kept != "kv_cache":
        raise reader.fail(FIELD, f"is set; a model whose sequences keep {kept} has no embeddings")
    parameters = parameters_without_head(found.parameters) if is_decoder else found.parameters
    return model, replace(parameters, quantized=quantized)


def resolve_config(
    content: bytes, families: Iterable[AnyFamily], formats: Iterable[AnyFormat], *, where: str
) -> tuple[ModelDescription, ParameterList]:
    """`resolve` of the bytes of a `config.json`. Raises StageError, too, for what is not one."""
    return resolve(parse_document(content, where=where), families, formats, where=where)
