"""`parameters.json`: a model's parameters, and how each is made of a checkpoint's tensors.

ResolveModel writes it from a family's own list; import, quantization and the weights index read it, so none of them
knows a family. Export fails where a model has other parameters than the list.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from mlcbuild.compiler import json_values
from mlcbuild.compiler.models.checkpoints.operations import Operation, Reshape, Shape, Stack, result_shape
from mlcbuild.compiler.models.checkpoints.smoothing import SmoothedInput
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.weights.held_weights import HeldWeights

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorLayout:
    """A tensor by another name or shape, and the operations that make it of that one: one expert of a tensor that has
    all, for example."""

    name: str
    shape: Shape
    operations: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedLayout:
    """Several tensors, each made of what a file has, of which the operations make the one: queries, keys and values
    that a checkpoint has in one tensor, for example."""

    KIND: ClassVar[str] = "joined"
    tensors: tuple[TensorLayout, ...]
    operations: tuple[Operation, ...]


GGUFSource = TensorLayout | JoinedLayout  # by the names that a GGUF file has, slowest axis first


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTensor:
    """A tensor by the name and shape that it has in a Hugging Face checkpoint; `gguf` is where a GGUF file has it, None
    where it has none. `others` are layouts of Hugging Face checkpoints that do not have the name."""

    name: str
    shape: Shape
    gguf: GGUFSource | None = None
    others: tuple[TensorLayout, ...] = ()

    def __post_init__(self) -> None:
        for layout in self.others if self.gguf is None else (self.gguf, *self.others):
            joined = layout if isinstance(layout, JoinedLayout) else JoinedLayout(tensors=(layout,), operations=())
            each = [result_shape(tensor.operations, [tensor.shape]) for tensor in joined.tensors]
            made = result_shape(joined.operations, each)
            if made != self.shape:
                names = ", ".join(tensor.name for tensor in joined.tensors)
                raise ValueError(f"{self.name} is {self.shape}, and made {made} of {names}")


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

    @property
    def parts(self) -> tuple[Parameter, ...]:
        """The parameter in parts (1, …) along the first axis, each made of sources of its own: one an expert, for
        experts that are stacked. Of any other parameter, the whole."""
        count = self.shape[0] if self.shape else 1
        each, rest = divmod(len(self.sources), count)
        match self.operations:
            case (Stack(axis=0),) | (Stack(axis=0), Reshape()) if self.role is ParameterRole.EXPERTS and not rest:
                shape = (1, *self.shape[1:])
                return tuple(
                    replace(self, shape=shape, sources=sources, operations=(Stack(axis=0), Reshape(shape=shape)))
                    for sources in (self.sources[begin : begin + each] for begin in range(0, count * each, each))
                )
        return (self,)


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedTensor:
    """A tensor that the model has no parameter for, because it is `equal_to` another, by Hugging Face's name.

    Checkpoints hold both, or one of the two.
    """

    tensor: CheckpointTensor
    equal_to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedCheckpoint:
    """How a checkpoint's weights are quantized: a format of `weights/checkpoint_formats/`, and what it made of the
    `quantization_config`, which only its own modules look into. `held` is what follows for everybody."""

    format: str
    configuration: Mapping[str, object]
    held: HeldWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterList:
    """All parameters of a model in the order of its layers.

    `ignored` are tensors that checkpoints of the family may hold and the model has no use for, as regular expressions
    for whole names, of Hugging Face or GGUF. `tied` are those that it has no use for if they equal another.
    `quantized` says how a checkpoint of Hugging Face has them, if not as numbers. `smoothed` are the inputs of matrices
    whose columns can be scaled.
    """

    parameters: tuple[Parameter, ...]
    ignored: tuple[str, ...] = ()
    tied: tuple[TiedTensor, ...] = ()
    quantized: QuantizedCheckpoint | None = None
    smoothed: tuple[SmoothedInput, ...] = ()

    def is_ignored(self, name: str) -> bool:
        return any(re.fullmatch(pattern, name) for pattern in self.ignored)


def read_parameters(path: Path) -> ParameterList:
    """The list in a `parameters.json`. Raises StageError for another file."""
    return json_values.read(ParameterList, path, version=VERSION)


def write_parameters(parameters: ParameterList, path: Path) -> None:
    json_values.write(parameters, path, version=VERSION)
