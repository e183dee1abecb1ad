"""SearchScales: AWQ's scales of inputs, and limits of groups, of matrices that have to be searched together.

Reads `statistics` (a folder) of the inputs of these matrices (`calibration.search_groups`), `shards` (imported,
safetensors) in which they lie, and `parameters` (parameters.json). Writes `scales` (`calibration.scales`), for
MergeScales. One input's statistics, and one matrix that reads it, are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from mlcbuild.compiler.calibration.awq import search_scales
from mlcbuild.compiler.calibration.clipping import search_clipping
from mlcbuild.compiler.calibration.matrices import ModelMatrices, Rounding
from mlcbuild.compiler.calibration.measured_error import MeasuredGroups
from mlcbuild.compiler.calibration.scales import WHOLE, Clipping, Scales, Scaling, scales_of_inputs, write_scales
from mlcbuild.compiler.calibration.statistics import InputStatistics, Statistics
from mlcbuild.compiler.models.checkpoints.parameters import Parameter, read_parameters
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.scheme import Encoder, QuantizationScheme
from mlcbuild.compiler.weights.tensor import Array


def run(
    *,
    shards: Sequence[Path],
    parameters: Path,
    statistics: Path,
    scales: Path,
    scheme: QuantizationScheme,
    encoder: Callable[[QuantizationScheme], Encoder],
) -> None:
    """`scheme` and its `encoder` are plug-ins. Raises StageError for weights that are not finite."""
    listed, observed = read_parameters(parameters), Statistics(statistics)
    matrices = ModelMatrices(shards, listed)
    rounding = Rounding(scheme=scheme, encoder=encoder(scheme))
    search = partial(search_scales, matrices=matrices, rounding=rounding)
    found = scales_of_inputs(listed.smoothed, observed, search)
    scaling = Scaling(found=Scales(scales=found), smoothed=listed.smoothed)
    clipping: dict[str, Clipping] = {}
    for parameter in matrices.parameters:
        seen = observed.of(parameter.name)
        if seen is None or not seen.rows or not rounding.covers(parameter) or not rounding.group_size(parameter):
            continue
        fractions = _clipping(parameter, seen, matrices, rounding, scaling)
        if (fractions < WHOLE).any():
            clipping[parameter.name] = Clipping(fractions=fractions, group_size=rounding.group_size(parameter))
            print(f"{parameter.name}: {(fractions < WHOLE).mean():.0%} of groups clipped", flush=True)
    write_scales(scales, Scales(scales=found, clipping=clipping))


def _clipping(
    parameter: Parameter, seen: InputStatistics, matrices: ModelMatrices, rounding: Rounding, scaling: Scaling
) -> Array:
    """(out, groups), of experts (experts, out, groups)."""
    gram = seen.gram
    factors = scaling.column_scales(parameter.name)
    if factors is not None:
        gram /= factors
        gram /= factors[:, np.newaxis]
    measured = MeasuredGroups(gram, rounding.group_size(parameter))
    found = [
        search_clipping(parameter, scaling.scaled(parameter, matrix), measured, rounding)
        for matrix in matrices.numbers(parameter.name)
    ]
    return np.stack(found) if parameter.role is ParameterRole.EXPERTS else found[0]
