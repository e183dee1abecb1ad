"""The nn modules of the model types that can be compiled; their configurations are read by `models.families`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tvm.relax.frontend import nn

from mlcbuild.compiler.families.llama import family as llama_config
from mlcbuild.compiler.families.llama.family import LlamaConfig
from mlcbuild.compiler.families.llama.model import LlamaForCausalLM
from mlcbuild.compiler.quantization.reader import Reader


class CompilableModel(Protocol):
    """What Export needs of an nn module."""

    def specification(self) -> dict[str, dict[str, object]]: ...

    def export_tvm(self, spec: Mapping[str, object]) -> tuple[object, list[tuple[str, nn.Parameter]]]: ...


_BUILDERS: Mapping[str, Callable[..., CompilableModel]] = dict.fromkeys(llama_config.MODEL_TYPES, LlamaForCausalLM)


def build_model(config: LlamaConfig, reader: Reader, *, layers: int | None = None) -> CompilableModel:
    """The nn module of a model, without weights, with its first `layers` layers; left out, with all.

    Raises StageError for a matrix that the reader's scheme cannot store.
    """
    return _BUILDERS[config.model_type](config, reader, layers=config.num_hidden_layers if layers is None else layers)
