"""What calibration has seen of the numbers by which a model's matrices are multiplied.

For the rows x of a layer's input, over all tokens of the sample, in the order of its columns:

    gram          Σ xᵀ x      (in, in): the Hessian of a product's squared error, but for a factor
    absolute_sum  Σ |x|       (in,)
    maximum       max |x|     (in,)

The squared error that a changed matrix W + ΔW (out, in) makes in the outputs of these rows is the trace of
ΔW gram ΔWᵀ. That is all that AWQ, GPTQ and the measurement of a scheme's error need of a text, so one observation of a
model serves every scheme.

A folder of statistics has `statistics.json` and a safetensors file an input, whose tensors are float32. Matrices that
are multiplied by the same rows, such as those of gate and up, share a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mlcbuild.compiler import json_values
from mlcbuild.compiler.weights.safetensors_file import SafetensorsFile, write_safetensors
from mlcbuild.compiler.weights.tensor import Array, Tensor, TensorDescription
from mlcbuild.errors import StageError

VERSION = 1
INDEX = "statistics.json"
GRAM, ABSOLUTE_SUM, MAXIMUM = "gram", "absolute_sum", "maximum"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedInput:
    """Where the statistics of an input lie, and the matrices, by the names of parameters, that read it. `rows` of
    `width` numbers were seen; of experts, those that were routed to any of them."""

    file: str
    matrices: tuple[str, ...]
    width: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsIndex:
    """`statistics.json`; `tokens` is how many the sample has."""

    tokens: int
    inputs: tuple[ObservedInput, ...]


class InputStatistics:
    """The statistics of one input, which are read when they are asked for."""

    def __init__(self, observed: ObservedInput, file: SafetensorsFile) -> None:
        self.observed = observed
        self._file = file

    @property
    def rows(self) -> int:
        return self.observed.rows

    @property
    def gram(self) -> Array:
        """(in, in) float32."""
        return self._file.read(GRAM).data

    @property
    def absolute_sum(self) -> Array:
        """(in,) float32."""
        return self._file.read(ABSOLUTE_SUM).data

    @property
    def maximum(self) -> Array:
        """(in,) float32."""
        return self._file.read(MAXIMUM).data


class Statistics:
    """A folder of statistics. Raises StageError for another folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.index = json_values.read(StatisticsIndex, folder / INDEX, version=VERSION)

    @cached_property
    def _by_matrix(self) -> Mapping[str, ObservedInput]:
        return {name: observed for observed in self.index.inputs for name in observed.matrices}

    def of(self, matrix: str) -> InputStatistics | None:
        """Those of what a matrix is multiplied by; None for one that was not observed, such as an embedding."""
        observed = self._by_matrix.get(matrix)
        return None if observed is None else self._opened(observed)

    def _opened(self, observed: ObservedInput) -> InputStatistics:
        file = SafetensorsFile(self._folder / observed.file)
        width = observed.width
        wanted = {GRAM: (width, width), ABSOLUTE_SUM: (width,), MAXIMUM: (width,)}
        found = {name: described.shape for name, described in file.descriptions.items()}
        if found != wanted:
            raise StageError(f"{observed.file} has no statistics of {width} columns")
        return InputStatistics(observed, file)


def write_input(path: Path, *, gram: Array, absolute_sum: Array, maximum: Array) -> None:
    """The file of one input, of float32 arrays; equal arrays give equal bytes."""
    arrays = {GRAM: gram, ABSOLUTE_SUM: absolute_sum, MAXIMUM: maximum}
    described = [TensorDescription(name=name, dtype="float32", shape=array.shape) for name, array in arrays.items()]
    write_safetensors(path, described, lambda one: Tensor(description=one, data=arrays[one.name]))


def write_index(folder: Path, *, tokens: int, inputs: Sequence[ObservedInput]) -> None:
    """`statistics.json` of a folder."""
    json_values.write(StatisticsIndex(tokens=tokens, inputs=tuple(inputs)), folder / INDEX, version=VERSION)
