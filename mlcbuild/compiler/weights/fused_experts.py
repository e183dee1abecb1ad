"""GGUF files in which the matrices gate and up of all experts of a layer are one tensor, `ffn_gate_up_exps`, as newer
converters of llama.cpp write them on request: (experts, rows of gate and then of up, columns). They are read as files
with two tensors are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from mlcbuild.compiler.weights.source import WeightSource
from mlcbuild.compiler.weights.tensor import Rows, Tensor, TensorDescription
from mlcbuild.errors import StageError

_FUSED = re.compile(r"(blk\.\d+\.ffn_)gate_up(_exps\.(?:weight|bias))")
_HALVES = ("gate", "up")


def with_experts_apart(source: WeightSource) -> WeightSource:
    """The source, or one that reads it with gate and up apart, where it has them in one. Raises StageError for a tensor
    that has no halves, and for a file that has gate and up both ways."""
    return ExpertsApart(source) if any(map(_FUSED.fullmatch, source.descriptions)) else source


class _Half(NamedTuple):
    """Of a tensor, the rows of each expert from `begin` to before `end`."""

    tensor: str
    begin: int
    end: int


class ExpertsApart:
    """A GGUF file some of whose experts are fused."""

    has_gguf_names = True

    def __init__(self, source: WeightSource) -> None:
        self._source = source
        self._halves: dict[str, _Half] = {}
        found = dict(source.descriptions)
        for name, described in source.descriptions.items():
            if (match := _FUSED.fullmatch(name)) is None:
                continue
            experts, rows, *rest = described.shape if len(described.shape) > 1 else (0, 1)
            if rows % len(_HALVES):
                raise StageError(f"the tensor {name} is {list(described.shape)}, which is not gate and up of experts")
            size = rows // len(_HALVES)
            for place, half in enumerate(_HALVES):
                own = f"{match[1]}{half}{match[2]}"
                if own in found:
                    raise StageError(f"there are both {own} and {name}, of the same experts")
                self._halves[own] = _Half(name, place * size, (place + 1) * size)
                found[own] = TensorDescription(name=own, dtype=described.dtype, shape=(experts, size, *rest))
            del found[name]
        self._descriptions = found

    @property
    def descriptions(self) -> Mapping[str, TensorDescription]:
        return self._descriptions

    def read(self, name: str, rows: Rows | None = None) -> Tensor:
        """One tensor, or some of its rows: of all experts, one, of which both halves are in memory for a moment."""
        if name not in self._halves:
            return self._source.read(name, rows)
        half = self._halves[name]
        data = self._source.read(half.tensor, rows).data[:, half.begin : half.end]
        return Tensor(description=self._descriptions[name].part(rows), data=data.copy())

    def close(self) -> None:
        self._source.close()
