"""A model's parameters in float32, made of its imported shards when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from mlcbuild.compiler.calibration.made_parameters import made_numbers
from mlcbuild.compiler.models.checkpoints.parameters import Parameter, ParameterList
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from mlcbuild.compiler.weights.tensor import Array
from mlcbuild.errors import StageError

_ROWS = 1024  # of an embedding that are in memory at a time


class ImportedParameters:
    """The parameters of a list, in the shards of ImportWeights. Raises StageError for one that no shard has."""

    def __init__(self, shards: Sequence[Path], listed: ParameterList) -> None:
        self._shards = [ImportedShard(path) for path in shards]
        self._by_name = {parameter.name: parameter for parameter in listed.parameters}

    def numbers(self, name: str) -> Array:
        """The whole of a parameter; experts are stacked."""
        parameter = self._parameter(name)
        shard = self._shard_of(parameter)
        if parameter.role is not ParameterRole.EXPERTS:
            (whole,) = made_numbers(shard, parameter)
            return whole
        stacked = np.empty(parameter.shape, np.float32)
        for number, matrix in enumerate(made_numbers(shard, parameter)):
            stacked[number] = matrix
        return stacked

    def rows(self, name: str, wanted: Array) -> Array:
        """Rows (n, columns) of a table by their numbers (n,). Of one that lies in a checkpoint as it is, a part is in
        memory at a time."""
        parameter = self._parameter(name)
        shard = self._shard_of(parameter)
        (source, *more) = parameter.sources
        if more or parameter.operations or not shard.is_kept_as_numbers(source.name):
            whole: Array = self.numbers(name)[wanted]
            return whole
        found = np.empty((len(wanted), parameter.shape[1]), np.float32)
        for begin in range(0, parameter.shape[0], _ROWS):
            end = min(begin + _ROWS, parameter.shape[0])
            inside = (wanted >= begin) & (wanted < end)
            if inside.any():
                found[inside] = shard.rows(source.name, (begin, end)).numbers("float32")[wanted[inside] - begin]
        return found

    def _parameter(self, name: str) -> Parameter:
        if name not in self._by_name:
            raise StageError(f"the model's list has no parameter {name}")
        return self._by_name[name]

    def _shard_of(self, parameter: Parameter) -> ImportedShard:
        first = parameter.sources[0].name
        if first not in self._owners:
            raise StageError(f"no shard has {first}, of which {parameter.name} is made")
        return self._owners[first]

    @cached_property
    def _owners(self) -> dict[str, ImportedShard]:
        return {name: shard for shard in self._shards for name in shard.descriptions}
