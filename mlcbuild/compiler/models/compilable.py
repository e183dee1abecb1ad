"""What Export needs of a family: the nn module of a model, without weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tvm.relax.frontend import nn

from mlcbuild.compiler import json_values
from mlcbuild.compiler.models.description import ModelDescription
from mlcbuild.compiler.models.family import Family
from mlcbuild.compiler.quantization.reader import Reader
from mlcbuild.errors import InternalError

Configuration = TypeVar("Configuration")


class CompilableModel(Protocol):
    """An nn module with its entry functions; `networks.causal_lm.CausalLM` is one."""

    def specification(self, *, hidden_states: bool = False) -> dict[str, dict[str, object]]:
        """The entry functions with their arguments, as `nn.Module.export_tvm` takes them; with `hidden_states` also
        those that return or take these."""

    def export_tvm(self, spec: Mapping[str, object]) -> tuple[object, list[tuple[str, nn.Parameter]]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBuilder(Generic[Configuration]):
    """A family's `MODEL`.

    `build(configuration, reader, layers=…)` makes the module with the layers of these numbers alone, and a KV cache for
    all. Its parameters have the names and shapes of the family's list, which Export checks, but that layers are
    numbered from 0.
    """

    family: Family[Configuration]
    build: Callable[..., CompilableModel]


AnyModelBuilder = ModelBuilder[Any]


def build_model(
    model: ModelDescription,
    builders: Iterable[AnyModelBuilder],
    reader: Reader,
    *,
    layers: Sequence[int] | None = None,
) -> CompilableModel:
    """The module of a model with its layers of the numbers `layers`; left out, with all.

    Raises StageError for a configuration that the family did not write, and a matrix that the scheme cannot store.
    """
    for builder in builders:
        if builder.family.name == model.family:
            configuration = json_values.decode(builder.family.configuration, model.configuration, where="configuration")
            shown = range(model.layers.count) if layers is None else layers
            return builder.build(configuration, reader, layers=tuple(shown))
    raise InternalError(f"the family {model.family} has no model.py, or was not given")
