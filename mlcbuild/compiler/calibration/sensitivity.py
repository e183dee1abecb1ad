"""What a model's matrices take by a scheme, and how far the model diverges if one of them is stored so (`divergence`).

What is stored is what the scheme's own encoder makes, and integers of a quantized checkpoint that the scheme keeps
change nothing. Parameters that the scheme does not quantize have bytes and no divergence: candidates for a choice
compute in one type, and in that all of them round these alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlcbuild.compiler import json_values
from mlcbuild.compiler.calibration.divergence import divergences
from mlcbuild.compiler.calibration.forward_pass import ObservedModel
from mlcbuild.compiler.calibration.made_parameters import parameters_in
from mlcbuild.compiler.calibration.samples import Tokens
from mlcbuild.compiler.models.checkpoints.parameters import Parameter, ParameterList
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.scheme import Encoder, QuantizationScheme
from mlcbuild.compiler.quantization.stored_parts import stored_part
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from mlcbuild.compiler.weights.tensor import Array, dtype_of
from mlcbuild.errors import StageError

VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredParameter:
    """`bytes` are all that is stored for the parameter, scales too. `quantized` says whether the scheme quantizes it.
    The `divergence` is None for a matrix that is read by no function that can be observed."""

    name: str
    role: ParameterRole
    bytes: int
    quantized: bool
    divergence: float | None = 0.0


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
    model: ObservedModel,
    samples: Sequence[Tokens],
    scheme: QuantizationScheme,
    encoder: Encoder,
) -> Sensitivity:
    """The sensitivity of all parameters of a shard. Raises StageError for one that the scheme cannot store, or by which
    the model overflows."""
    parameters = {parameter.name: parameter for parameter in parameters_in(shard, listed)}
    quantized = [name for name, parameter in parameters.items() if scheme.covers(parameter.role)]

    def stored(name: str) -> Array:
        return _stored(shard, parameters[name], scheme, encoder)

    found = divergences(model, samples, quantized, stored) if quantized else {}
    for name, divergence in found.items():
        if not math.isfinite(divergence):
            raise StageError(f"with {name} in {scheme.name}, the model's outputs are not finite")
    measured = tuple(
        MeasuredParameter(
            name=name,
            role=parameter.role,
            bytes=sum(math.prod(tensor.shape) * dtype_of(tensor.dtype).itemsize for tensor in scheme.stored(parameter)),
            quantized=scheme.covers(parameter.role),
            divergence=found.get(name) if scheme.covers(parameter.role) else 0.0,
        )
        for name, parameter in parameters.items()
    )
    return Sensitivity(scheme=scheme.name, parameters=measured)


def _stored(shard: ImportedShard, parameter: Parameter, scheme: QuantizationScheme, encoder: Encoder) -> Array:
    """The matrix as it is stored, in float32; experts are stacked."""
    parts = [
        encoder.decode(part, stored_part(shard, part, scheme, encoder)).astype(np.float32) for part in parameter.parts
    ]
    return np.concatenate(parts) if parameter.role is ParameterRole.EXPERTS else parts[0]
