"""SmoothScales: SmoothQuant's scales of inputs, by what a calibration has observed.

Reads `shards` (imported, safetensors), `parameters` (parameters.json) and `statistics` (a folder). Writes `scales`
(`calibration.scales`), for ApplyScales. One matrix is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from mlcbuild.compiler.calibration.matrices import ModelMatrices, Rounding
from mlcbuild.compiler.calibration.scales import Scales, scales_of_inputs, write_scales
from mlcbuild.compiler.calibration.smoothquant import smoothing_scales
from mlcbuild.compiler.calibration.statistics import Statistics
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.compiler.quantization.scheme import Encoder, QuantizationScheme


def run(
    *,
    shards: Sequence[Path],
    parameters: Path,
    statistics: Path,
    scales: Path,
    alpha: float,
    scheme: QuantizationScheme,
    encoder: Callable[[QuantizationScheme], Encoder],
) -> None:
    """`scheme` and its `encoder` are plug-ins; `alpha`, from 0 to 1, is how much of what is hard to round the weights
    are given. Raises StageError for weights that are not finite."""
    listed, observed = read_parameters(parameters), Statistics(statistics)
    matrices = ModelMatrices(shards, listed)
    rounding = Rounding(scheme=scheme, encoder=encoder(scheme))
    search = partial(smoothing_scales, matrices=matrices, rounding=rounding, alpha=alpha)
    write_scales(scales, Scales(scales=scales_of_inputs(listed.smoothed, observed, search)))
