"""A decoder that makes embeddings: it has no use for the head of a language model."""

from __future__ import annotations

import re
from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.compiler.models.checkpoints.parameters import CheckpointTensor, ParameterList, TensorLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.embedding import FIELD

_BODY = "model."  # what names of a decoder's tensors begin with, beside its head's


def without_head(reader: ConfigReader) -> ConfigReader:
    """The configuration of a model that makes embeddings as if its head were tied, and any other as it is."""
    if not reader.has(FIELD):
        return reader
    return replace(reader, document={**reader.document, "tie_word_embeddings": True})


def with_head_apart(reader: ConfigReader, config: DecoderConfig) -> DecoderConfig:
    """A decoder whose head is a parameter of its own in MLC-LLM's packages, tied or not; one that makes embeddings has
    none."""
    return replace(config, head_apart=config.tie_word_embeddings and not reader.has(FIELD))


def parameters_without_head(parameters: ParameterList) -> ParameterList:
    """Those of such a decoder: checkpoints may have a head nevertheless, and may leave `model.` out, as those of models
    without one do."""
    found = [
        replace(parameter, sources=tuple(map(_with_short_name, parameter.sources)))
        for parameter in parameters.parameters
    ]
    heads = [tied.tensor for tied in parameters.tied]
    files = [head.gguf.name for head in heads if isinstance(head.gguf, TensorLayout)]
    names = [*(head.name for head in heads), *files]
    ignored = (*parameters.ignored, *map(re.escape, names))
    return replace(parameters, parameters=tuple(found), ignored=ignored, tied=())


def _with_short_name(tensor: CheckpointTensor) -> CheckpointTensor:
    short = tensor.name.removeprefix(_BODY)
    if short == tensor.name:
        return tensor
    return replace(tensor, others=(*tensor.others, TensorLayout(name=short, shape=tensor.shape)))
