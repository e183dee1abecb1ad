"""`parameters.json`: a model's parameters, and how each is made of a checkpoint's tensors.

ResolveModel writes it from a family's own list; import, quantization and the weights index read it, so none of them
knows a family. Export fails where a model has other parameters than the list.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.compiler import json_values
from mlcbuild.compiler.models.operations import Operation, Shape, result_shape

VERSION = 1


class ParameterRole(enum.Enum):
    """What a parameter is to the model: a scheme decides by it how the parameter is stored."""

    EMBEDDING = "embedding"
    LINEAR = "linear"
    FINAL_FC = "final fc"  # the language model's head, where it is not the embedding
    VECTOR = "vector"  # norms and biases: never quantized


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFSource:
    """A tensor by the name and shape that it has in a GGUF file, slowest axis first, and what makes Hugging Face's of
    it."""

    name: str
    shape: Shape
    operations: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTensor:
    """A tensor by the name and shape that it has in a Hugging Face checkpoint; `gguf` is where a GGUF file has it, None
    where it has none."""

    name: str
    shape: Shape
    gguf: GGUFSource | None = None

    def __post_init__(self) -> None:
        if self.gguf is not None:
            made = result_shape(self.gguf.operations, [self.gguf.shape])
            if made != self.shape:
                raise ValueError(f"{self.name} is {self.shape}, and made {made} of {self.gguf.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter by MLC-LLM's name, made of `sources` by `operations`; without any it is its one source."""

    name: str
    role: ParameterRole
    shape: Shape
    sources: tuple[CheckpointTensor, ...]
    operations: tuple[Operation, ...] = ()

    def __post_init__(self) -> None:
        made = result_shape(self.operations, [source.shape for source in self.sources])
        if made != self.shape:
            raise ValueError(f"{self.name} is {self.shape}, and its sources make {made}")

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedTensor:
    """A tensor that the model has no parameter for, because it is `equal_to` another, by Hugging Face's name.

    Checkpoints hold both, or one of the two.
    """

    tensor: CheckpointTensor
    equal_to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterList:
    """All parameters of a model in the order of its layers.

    `ignored` are tensors that checkpoints of the family may hold and the model has no use for, as regular expressions
    for whole names, of Hugging Face or GGUF. `tied` are those that it has no use for if they equal another.
    """

    parameters: tuple[Parameter, ...]
    ignored: tuple[str, ...] = ()
    tied: tuple[TiedTensor, ...] = ()

    def is_ignored(self, name: str) -> bool:
        return any(re.fullmatch(pattern, name) for pattern in self.ignored)


def read_parameters(path: Path) -> ParameterList:
    """The list in a `parameters.json`. Raises StageError for another file."""
    return json_values.read(ParameterList, path, version=VERSION)


def write_parameters(parameters: ParameterList, path: Path) -> None:
    json_values.write(parameters, path, version=VERSION)
