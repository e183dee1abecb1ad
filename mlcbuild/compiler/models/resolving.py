"""A `config.json` by its family: which one reads it, and what comes of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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
from mlcbuild.errors import StageError
from mlcbuild.suggestions import known_values

AnyFamily = Family[Any]


def resolve(
    document: Mapping[str, object], families: Iterable[AnyFamily], *, where: str = "config.json"
) -> tuple[ModelDescription, ParameterList]:
    """The model that a `config.json` describes, and its parameters. Raises StageError for a model type of no family,
    and for fields that its family refuses; `where` names the file."""
    reader = ConfigReader(document, where)
    model_type = reader.string("model_type")
    by_type = {name: family for family in families for name in family.model_types}
    if model_type not in by_type:
        raise StageError(
            f'{where}: the field "model_type" is "{model_type}", which is not supported',
            advice=(known_values(model_type, sorted(by_type)),),
        )
    family = by_type[model_type]
    _require_unquantized(reader, family.quantized_checkpoints)
    found = family.resolve(without_head(reader))
    limits = replace(found.limits, text_length=read_length(reader))
    kind = EmbeddingModelType.ENCODER if limits.is_encoder else EmbeddingModelType.DECODER
    embedding = read_embedding(reader, model_type=kind, default=found.embedding)
    model = ModelDescription(
        family=family.name,
        model_type=model_type,
        kv_state_kind=family.kv_state_kind,
        vocab_size=found.vocab_size,
        layers=found.layers,
        limits=limits,
        sizes=library_sizes(limits, Overrides(), model_type=model_type),
        chat_config=found.chat_config,
        configuration=json_values.encode(found.configuration),
        embedding=embedding,
    )
    is_decoder = embedding is not None and kind is EmbeddingModelType.DECODER
    if is_decoder and family.kv_state_kind != "kv_cache":
        raise reader.fail(FIELD, f"is set; a model whose sequences keep {family.kv_state_kind} has no embeddings")
    return model, parameters_without_head(found.parameters) if is_decoder else found.parameters


def resolve_config(
    content: bytes, families: Iterable[AnyFamily], *, where: str
) -> tuple[ModelDescription, ParameterList]:
    """`resolve` of the bytes of a `config.json`. Raises StageError, too, for what is not one."""
    return resolve(parse_document(content, where=where), families, where=where)


def _require_unquantized(reader: ConfigReader, read: Collection[str]) -> None:
    """Raises StageError for a checkpoint whose weights are quantized already, by the method that its makers chose, but
    for those whose method is one of `read`."""
    # Transformers' name, MLX's, and the one that compressed-tensors had at first.
    for name in ("quantization_config", "quantization", "compression_config"):
        if reader.document.get(name) in (None, {}):
            continue
        table = reader.table(name)
        method = table.string("quant_method", default=table.string("format", default="by a method without a name"))
        if name == "quantization_config" and method in read:
            continue
        raise reader.fail(
            name,
            f"says that the weights are quantized already ({method}); weights are imported in float32, float16 or "
            "bfloat16",
            advice=(
                "take the model whose weights are not quantized, or a GGUF file of it",
                "a library alone needs no weights: name a copy of config.json without the field as the `config`",
            ),
        )
