"""`model.json`: what a model is, in words of no family.

ResolveModel writes it for a model, with the sizes that follow from its own limits; ConfigureModel for a library, with
the library's overrides applied. Only the family's own modules look into `configuration`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from mlcbuild.compiler import json_values
from mlcbuild.compiler.models.embedding import EmbeddingMetadata
from mlcbuild.compiler.models.sizes import ContextLimits, LibrarySizes

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """A model's layers: the parameters of layer 7 of `model.layers` begin with `model.layers.7.`.

    `kinds` has a word of the family's for each layer, or none if all are equal. Layers of one kind compute the same,
    of parameters with the same names, shapes and dtypes. Those of `recurrent` kinds keep another state than the others,
    if a model has both. Raises ValueError for kinds of another number of layers.
    """

    name: str
    count: int
    kinds: tuple[str, ...] = ()
    recurrent: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kinds and len(self.kinds) != self.count:
            raise ValueError(f"{self.count} layers have {len(self.kinds)} kinds")

    def kind(self, number: int) -> str:
        """The kind of the layer of a number; empty if all are equal."""
        return self.kinds[number] if self.kinds else ""

    def place(self, number: int) -> int:
        """The place of a layer in the state that it keeps: how many of the layers before it keep the same."""
        recurrent = self.kind(number) in self.recurrent
        return sum((self.kind(other) in self.recurrent) is recurrent for other in range(number))


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """A model's `family` is the name of its folder in `compiler/families/`.

    `configuration` is what the family's model is built from. `chat_config` is the object `model_config` of an
    `mlc-chat-config.json`; the names of sizes stand in it where their values go. `embedding` is None for a model that
    generates text.
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
    embedding: EmbeddingMetadata | None = None

    @property
    def task(self) -> dict[str, object]:
        """The fields of a library's metadata that say what the model is for."""
        if self.embedding is None:
            return {"model_task": "chat"}
        return {"model_task": "embedding", "embedding_metadata": self.embedding.document}

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
