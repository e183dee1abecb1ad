"""Maximum: static scales of what the matrices of one imported shard are multiplied by, of the largest that was seen.

Reads `shard` (safetensors, Hugging Face names), `parameters` (parameters.json) and the folder `statistics`. Writes
`calibrated`: a shard of made parameters (`calibration.made_parameters`) whose numbers are as they were, with scales of
activations beside them, which Quantize stores. They replace those that a checkpoint has. Matrices whose input was never
seen keep theirs, or have scales of each token's own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mlcbuild.compiler.calibration.made_parameters import Unchanged, write_made_shard
from mlcbuild.compiler.calibration.statistics import Statistics
from mlcbuild.compiler.models.checkpoints.parameters import Parameter, read_parameters
from mlcbuild.compiler.quantization.scheme import Encoder, QuantizationScheme, StaticScalesEncoder
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from mlcbuild.compiler.weights.tensor import Array
from mlcbuild.errors import InternalError, StageError


def run(
    *,
    shard: Path,
    parameters: Path,
    statistics: Path,
    calibrated: Path,
    scheme: QuantizationScheme,
    encoder: Callable[[QuantizationScheme], Encoder],
) -> None:
    """`scheme` and its `encoder` are plug-ins. Raises StageError for statistics that do not fit the weights."""
    using = encoder(scheme)
    if not isinstance(using, StaticScalesEncoder):
        raise InternalError(f"{scheme.name} has no static scales of activations")
    change = _Maxima(Statistics(statistics), using)
    write_made_shard(calibrated, ImportedShard(shard), read_parameters(parameters), change)


class _Maxima(Unchanged):
    """A `calibration.made_parameters.ActivationChange`."""

    def __init__(self, statistics: Statistics, encoder: StaticScalesEncoder) -> None:
        self._statistics, self._encoder = statistics, encoder

    def activation_scales(self, parameter: Parameter) -> Array | None:
        observed = self._statistics.of(parameter.name)
        if observed is None or not observed.rows:
            return None
        columns, width = parameter.shape[-1], observed.observed.width
        if columns != width:
            raise StageError(f"{parameter.name} has {columns} columns, and the statistics {width}")
        return self._encoder.static_scales_of(parameter, observed.maximum)
