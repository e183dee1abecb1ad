"""The matrices of a model, read from its imported shards as a scheme would store them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from mlcbuild.compiler.calibration.made_parameters import made_numbers, parameters_in
from mlcbuild.compiler.models.checkpoints.parameters import Parameter, ParameterList
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.mixed.scheme import scheme_of
from mlcbuild.compiler.quantization.scheme import Encoder, QuantizationScheme
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from mlcbuild.compiler.weights.tensor import Array, dtype_of
from mlcbuild.errors import StageError

Item = TypeVar("Item")

ROWS = 128
"""Rows that are quantized together: the blocks of all schemes divide them."""

SAMPLED = 4
"""Blocks of a matrix's rows, or experts, by which candidates are compared."""


class ModelMatrices:
    """Parameters of a model by name, wherever in its shards they lie."""

    def __init__(self, shards: Sequence[Path], listed: ParameterList) -> None:
        self._files = [ImportedShard(path) for path in shards]
        self._found = {
            parameter.name: (shard, parameter) for shard in self._files for parameter in parameters_in(shard, listed)
        }

    @property
    def parameters(self) -> list[Parameter]:
        return [parameter for _, parameter in self._found.values()]

    def parameter(self, name: str) -> Parameter:
        """Raises StageError for one that the shards do not have."""
        if name not in self._found:
            raise StageError(f"the weights have no {name}")
        return self._found[name][1]

    def numbers(self, name: str) -> Iterator[Array]:
        """Its float32 numbers, of experts one (out, in) after the other."""
        shard, parameter = self._found[name][0], self.parameter(name)
        return made_numbers(shard, parameter)

    def sample(self, name: str) -> list[Array]:
        """Rows (n, in) of a matrix, in whole blocks that lie evenly over it; of experts, over some of them."""
        shard, parameter = self._found[name][0], self.parameter(name)
        chosen = _evenly(parameter.parts, SAMPLED)
        found = [matrix for part in chosen for matrix in made_numbers(shard, part)]
        each = max(1, SAMPLED // len(found))
        return [block for matrix in found for block in _evenly(blocks(matrix), each)]


def blocks(matrix: Array) -> list[Array]:
    """(out, in) in blocks of rows."""
    return [matrix[begin : begin + ROWS] for begin in range(0, len(matrix), ROWS)]


def _evenly(items: Sequence[Item], count: int) -> list[Item]:
    if len(items) <= count:
        return list(items)
    return [items[number * len(items) // count] for number in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Rows of a matrix as a `quantization.scheme.Weight`."""

    name: str
    role: ParameterRole
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """What a scheme makes of numbers when they are stored and read back."""

    scheme: QuantizationScheme
    encoder: Encoder

    def covers(self, parameter: Parameter) -> bool:
        """Whether a parameter is a matrix that is quantized. Rows of an embedding are read one by one, too."""
        is_table = parameter.role is ParameterRole.EMBEDDING
        return not is_table and scheme_of(self.scheme, parameter).covers(parameter.role)

    def __call__(self, parameter: Parameter, rows: Array) -> Array | None:
        """Rows (n, in) float32, stored and read back, in float32; None for what the model's type cannot hold."""
        is_stacked = parameter.role is ParameterRole.EXPERTS
        shape = (1, *rows.shape) if is_stacked else rows.shape
        weight = _Rows(name=parameter.name, role=parameter.role, shape=shape)
        with np.errstate(over="ignore"):
            numbers = rows.reshape(shape).astype(self._dtype)
        if not np.isfinite(numbers).all():
            return None
        read = self.encoder.decode(weight, self.encoder.encode(weight, numbers))
        found: Array = read.reshape(rows.shape).astype(np.float32)
        return found

    @cached_property
    def _dtype(self) -> np.dtype[np.generic]:
        return dtype_of(self.scheme.model_dtype)

    def group_size(self, parameter: Parameter) -> int:
        """Columns of a matrix that share a scale; 0 for a scheme whose scales are of whole rows, blocks or matrices."""
        size = getattr(scheme_of(self.scheme, parameter), "group_size", 0)
        return size if isinstance(size, int) and 0 < size <= _LARGEST_GROUP else 0


_LARGEST_GROUP = 256
