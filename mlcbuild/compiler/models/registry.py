"""The model types that can be compiled, each with its configuration's reader and its nn module."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tvm.relax.frontend import nn

from mlcbuild.compiler.models.config import read_document
from mlcbuild.compiler.models.llama import config as llama_config
from mlcbuild.compiler.models.llama.config import LlamaConfig
from mlcbuild.compiler.models.llama.model import LlamaForCausalLM
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.errors import StageError


class CompilableModel(Protocol):
    """What Export needs of an nn module."""

    def specification(self) -> dict[str, dict[str, object]]: ...

    def export_tvm(self, spec: Mapping[str, object]) -> tuple[object, list[tuple[str, nn.Parameter]]]: ...


@dataclass(frozen=True, kw_only=True)
class ModelFamily:
    """How one family of models is read and built."""

    read_config: Callable[[Mapping[str, object]], LlamaConfig]
    build: Callable[[LlamaConfig, QuantizationScheme], CompilableModel]


_LLAMA = ModelFamily(
    read_config=LlamaConfig.from_document,
    build=LlamaForCausalLM,
)
FAMILIES: Mapping[str, ModelFamily] = dict.fromkeys(llama_config.MODEL_TYPES, _LLAMA)


def read_model(path: Path) -> tuple[ModelFamily, LlamaConfig]:
    """The family and configuration of a `config.json`. Raises StageError for an unsupported `model_type`."""
    document = read_document(path)
    model_type = document.get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        known = sorted(FAMILIES)
        close = difflib.get_close_matches(str(model_type), known, n=1)
        hint = f'; did you mean "{close[0]}"?' if close else ""
        raise StageError(
            f'{path.name}: the field "model_type" is {model_type!r}, which is not supported',
            advice=(f"known: {', '.join(known)}{hint}",),
        )
    return family, family.read_config(document)
