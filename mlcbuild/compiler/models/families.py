"""The model families as far as their configuration and parameters go: no tvm is needed to read either."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from mlcbuild.compiler.families.llama import family as llama_config
from mlcbuild.compiler.families.llama import parameters as llama_parameters
from mlcbuild.compiler.families.llama.family import LlamaConfig
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.parameters import ParameterList
from mlcbuild.errors import StageError

MODEL_TYPES: tuple[str, ...] = llama_config.MODEL_TYPES


def read_config(
    document: Mapping[str, object],
    *,
    overrides: Mapping[str, object] | None = None,
    where: str = "config.json",
) -> LlamaConfig:
    """The checked configuration of a `config.json`. Raises StageError for an unknown type and for bad
    fields."""
    model_type = ConfigReader(document, where).string("model_type")
    if model_type not in MODEL_TYPES:
        close = difflib.get_close_matches(model_type, MODEL_TYPES, n=1)
        hint = f'; did you mean "{close[0]}"?' if close else ""
        raise StageError(
            f'{where}: the field "model_type" is "{model_type}", which is not supported',
            advice=(f"known: {', '.join(MODEL_TYPES)}{hint}",),
        )
    return LlamaConfig.from_document(document, overrides=overrides, where=where)


def parameter_list(document: Mapping[str, object], *, where: str = "config.json") -> ParameterList:
    """The parameters of the model that a `config.json` describes. Raises StageError as `read_config` does."""
    return llama_parameters.parameters(read_config(document, where=where))
