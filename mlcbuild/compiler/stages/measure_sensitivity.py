"""MeasureSensitivity: what the matrices of an imported shard take, and how much their outputs change, by one scheme.

Reads `shard` (safetensors, Hugging Face names), `parameters` (parameters.json) and `statistics` (a folder of
`calibration.statistics`). Writes `measured` (`calibration.sensitivity`), in which nothing is of a budget: whatever is
chosen in the end, this is measured once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mlcbuild.compiler.calibration.sensitivity import measure, write_sensitivity
from mlcbuild.compiler.calibration.statistics import Statistics
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.compiler.quantization.scheme import Encoder, QuantizationScheme
from mlcbuild.compiler.weights.imported_shard import ImportedShard


def run(
    *,
    shard: Path,
    parameters: Path,
    statistics: Path,
    measured: Path,
    scheme: QuantizationScheme,
    encoder: Callable[[QuantizationScheme], Encoder],
) -> None:
    """`scheme` and its `encoder` are plug-ins. Raises StageError for a parameter that the scheme cannot store."""
    found = measure(ImportedShard(shard), read_parameters(parameters), Statistics(statistics), scheme, encoder(scheme))
    write_sensitivity(found, measured)
