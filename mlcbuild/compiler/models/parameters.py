"""A model's parameters as values: what each is called, which tensors of a checkpoint make it, and its part
in the model.

A family lists its own (`families.llama.parameters`); import, quantization and the weights index all read that
list, so that a name is written once.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class Role(enum.Enum):
    """What a parameter is to the model: a scheme decides by it how the parameter is stored."""

    EMBEDDING = "embedding"
    LINEAR = "linear"
    FINAL_FC = "final fc"  # the language model's head, where it is not the embedding
    VECTOR = "vector"  # norms and biases: never quantized


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTensor:
    """A tensor by the name and shape that it has in a Hugging Face checkpoint."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter by MLC-LLM's name, made of `tensors` one after another along their first axis."""

    name: str
    role: Role
    tensors: tuple[CheckpointTensor, ...]

    def __post_init__(self) -> None:
        tails = {tensor.shape[1:] for tensor in self.tensors}
        if len(tails) != 1:
            raise ValueError(f"{self.name}: tensors that do not stack: {self.tensors}")

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(tensor.shape[0] for tensor in self.tensors), *self.tensors[0].shape[1:])

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterList:
    """All parameters of a model in the order of its layers; `ignored` are tensors that checkpoints of the
    family may hold and the model has no use for."""

    parameters: tuple[Parameter, ...]
    ignored: tuple[str, ...] = ()  # regular expressions for whole names

    def is_ignored(self, name: str) -> bool:
        return any(re.fullmatch(pattern, name) for pattern in self.ignored)
