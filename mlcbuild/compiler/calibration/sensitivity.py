"""How much a model's outputs change if a matrix is stored by a scheme, and what it takes.

For a matrix W (out, in) whose inputs x were observed, and W + Δ as the scheme stores it:

    error   trace(Δ G Δᵀ) / trace(W G Wᵀ)          G = Σ xᵀ x over the rows of the sample (`calibration.statistics`)
    energy  trace(W G Wᵀ)                          the squares of all outputs; of experts, the mean

The rows of a table of an embedding are read one by one: they have ‖Δ‖² / ‖W‖², and an energy of as many rows of mean
size as the sample has tokens. One that is also the head has both. A matrix that was not observed has the error of its
numbers, and no energy. Experts share the inputs of all. How errors of different matrices are weighed is for
`calibration.weighing`.

Δ is what the scheme's own encoder and decoder make, and integers of a quantized checkpoint that the scheme keeps have
none. Parameters that no scheme quantizes have bytes and no error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlcbuild.compiler import json_values
from mlcbuild.compiler.calibration.made_parameters import made_numbers, parameters_in
from mlcbuild.compiler.calibration.measured_error import MeasuredError
from mlcbuild.compiler.calibration.statistics import Statistics
from mlcbuild.compiler.models.checkpoints.parameters import Parameter, ParameterList
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.scheme import Encoder, QuantizationScheme
from mlcbuild.compiler.quantization.stored_parts import stored_part
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from mlcbuild.compiler.weights.tensor import Array, dtype_of

VERSION = 1
_ROWS = 2048  # of a matrix that are compared at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativeError:
    """`error` is relative to `energy`, which is 0 where it is not known."""

    error: float
    energy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredParameter:
    """`bytes` are all that is stored for the parameter, scales too. `quantized` says whether the scheme quantizes it.
    The errors of `outputs`, and of the rows of a `table`, are None for a parameter that has none."""

    name: str
    role: ParameterRole
    bytes: int
    quantized: bool
    outputs: RelativeError | None = None
    table: RelativeError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """The parameters of a shard, stored by a scheme."""

    scheme: str
    parameters: tuple[MeasuredParameter, ...]


def read_sensitivity(path: Path) -> Sensitivity:
    """Raises StageError for another file."""
    return json_values.read(Sensitivity, path, version=VERSION)


def write_sensitivity(sensitivity: Sensitivity, path: Path) -> None:
    json_values.write(sensitivity, path, version=VERSION)


def measure(
    shard: ImportedShard,
    listed: ParameterList,
    statistics: Statistics,
    scheme: QuantizationScheme,
    encoder: Encoder,
) -> Sensitivity:
    """The sensitivity of all parameters of a shard. Raises StageError for one that the scheme cannot store."""
    measured = []
    for parameter in parameters_in(shard, listed):
        stored = scheme.stored(parameter)
        outputs, table = None, None
        if is_matrix(parameter):
            outputs, table = _errors(shard, parameter, statistics, scheme, encoder)
        measured.append(
            MeasuredParameter(
                name=parameter.name,
                role=parameter.role,
                bytes=sum(math.prod(tensor.shape) * dtype_of(tensor.dtype).itemsize for tensor in stored),
                quantized=scheme.covers(parameter.role),
                outputs=outputs,
                table=table,
            )
        )
    return Sensitivity(scheme=scheme.name, parameters=tuple(measured))


def is_matrix(parameter: Parameter) -> bool:
    """Whether a scheme may quantize a parameter."""
    return parameter.role in (
        ParameterRole.EMBEDDING,
        ParameterRole.LINEAR,
        ParameterRole.FINAL_FC,
        ParameterRole.EXPERTS,
    )


def _errors(
    shard: ImportedShard,
    parameter: Parameter,
    statistics: Statistics,
    scheme: QuantizationScheme,
    encoder: Encoder,
) -> tuple[RelativeError | None, RelativeError | None]:
    """The errors of outputs, and of rows."""
    observed = statistics.of(parameter.name)
    is_table = parameter.role is ParameterRole.EMBEDDING
    measured = None if observed is None else MeasuredError(observed.gram)
    outputs, numbers = _Sums(), _Sums()
    for matrix, restored in _pairs(shard, parameter, scheme, encoder):
        for begin in range(0, len(matrix), _ROWS):
            rows = matrix[begin : begin + _ROWS]
            delta = restored[begin : begin + _ROWS] - rows
            if measured is not None:
                outputs.add(measured.total(delta), measured.total(rows))
            if is_table or measured is None:
                numbers.add(_squares(delta), _squares(rows))
    if is_table:
        table = numbers.relative(statistics.index.tokens / parameter.shape[0])
        return (None if measured is None else outputs.relative(1.0)), table
    if measured is None:
        return numbers.relative(0.0), None
    experts = parameter.shape[0] if parameter.role is ParameterRole.EXPERTS else 1
    return outputs.relative(1 / experts), None


class _Sums:
    """Squares of changes, and of what is changed."""

    def __init__(self) -> None:
        self._changes: list[float] = []
        self._sizes: list[float] = []

    def add(self, change: float, size: float) -> None:
        self._changes.append(change)
        self._sizes.append(size)

    def relative(self, share: float) -> RelativeError:
        """Of all that was added; `share` is that of the energy in the sum of sizes."""
        size = math.fsum(self._sizes)
        return RelativeError(error=math.fsum(self._changes) / size if size > 0 else 0.0, energy=size * share)


def _pairs(
    shard: ImportedShard, parameter: Parameter, scheme: QuantizationScheme, encoder: Encoder
) -> Iterator[tuple[Array, Array]]:
    """Matrices (out, in) as they are, and as they are stored, in float32: one, or those of experts."""
    for part in parameter.parts:
        stored = encoder.decode(part, stored_part(shard, part, scheme, encoder)).astype(np.float32)
        for number, numbers in enumerate(made_numbers(shard, part)):
            yield numbers, stored[number] if parameter.role is ParameterRole.EXPERTS else stored


def _squares(numbers: Array) -> float:
    """The sum of squares, in an order that depends on no processor."""
    return math.fsum(float(total) for total in _row_sums(numbers.astype(np.float64) ** 2))


def _row_sums(squares: Array) -> Array:
    """Sums of rows, column by column."""
    total = np.zeros(len(squares))
    for column in squares.T:
        total += column
    return total
