"""A model whose GGUF file is written, and what a family adds to the metadata that all architectures have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlcbuild.compiler.models.description import ModelDescription

Value = bool | int | float | str | tuple[bool, ...] | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenModel:
    """`configuration` is what the model's family made of `document`, its `config.json`; of a vision-language model
    that is the text part."""

    description: ModelDescription
    configuration: Any
    document: Mapping[str, object]

    @property
    def positions(self) -> int:
        """How long the model's texts may be."""
        return self.description.limits.max_position_embeddings

    @property
    def window(self) -> int:
        """How many tokens attention of some or all layers sees; 0 for all."""
        in_layers: int = self.configuration.rules.window
        return in_layers or max(self.description.limits.sliding_window or 0, 0)

    def integer(self, name: str) -> int | None:
        """A field of the document, if it is there."""
        value = self.document.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFMetadata:
    """`values` by keys below the architecture's name; `factors` are small tensors of float32 numbers by their names."""

    values: Mapping[str, Value]
    factors: Mapping[str, tuple[float, ...]]
