"""`model.json`: what a model is, in words of no family.

ResolveModel writes it for a model, with the sizes that follow from its own limits; ConfigureModel for a library, with
the library's overrides applied. Only the family's own modules look into `configuration`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from mlcbuild.compiler import json_values
from mlcbuild.compiler.models.sizes import ContextLimits, LibrarySizes

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Equal layers: the parameters of layer 7 of `model.layers` begin with `model.layers.7.`."""

    name: str
    count: int


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """A model's `family` is the name of its folder in `compiler/families/`.

    `configuration` is what the family's model is built from. `chat_config` is the object `model_config` of an
    `mlc-chat-config.json`; the names of sizes stand in it where their values go.
    """

    family: str
    model_type: str
    kv_state_kind: str
    vocab_size: int
    layers: Layers
    limits: ContextLimits
    sizes: LibrarySizes
    chat_config: Mapping[str, object]
    configuration: Mapping[str, object]

    @property
    def model_config(self) -> dict[str, object]:
        """`chat_config` with the sizes."""
        sizes = asdict(self.sizes)
        return {name: sizes.get(name, value) for name, value in self.chat_config.items()}


def read_model(path: Path) -> ModelDescription:
    """The model in a `model.json`. Raises StageError for another file."""
    return json_values.read(ModelDescription, path, version=VERSION)


def write_model(model: ModelDescription, path: Path) -> None:
    json_values.write(model, path, version=VERSION)
