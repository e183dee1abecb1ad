"""MeasureSensitivity: what the matrices of an imported shard take by one scheme, and how far the model diverges if one
of them is stored so.

Reads `shard` (safetensors, Hugging Face names), `parameters` (parameters.json), `shards` (all that are imported),
`samples` (the folder of SampleTexts, of which the first are read), and of the library of ExportObserved `library` and
`observation`. Writes `measured` (`calibration.sensitivity`), in which nothing is of a budget: whatever is chosen in the
end, this is measured once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.compiler.calibration.divergence import first_samples
from mlcbuild.compiler.calibration.forward_pass import ObservedModel
from mlcbuild.compiler.calibration.imported_parameters import ImportedParameters
from mlcbuild.compiler.calibration.observation import read_observation
from mlcbuild.compiler.calibration.samples import read_samples
from mlcbuild.compiler.calibration.sensitivity import measure, write_sensitivity
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.compiler.quantization.scheme import Encoder, QuantizationScheme
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from mlcbuild.errors import StageError, UsageError


def run(
    *,
    shard: Path,
    shards: Sequence[Path],
    parameters: Path,
    samples: Path,
    library: Path,
    observation: Path,
    measured: Path,
    scheme: QuantizationScheme,
    encoder: Callable[[QuantizationScheme], Encoder],
    hints: Mapping[str, Any] | None = None,
) -> None:
    """`scheme` and its `encoder` are plug-ins. Raises StageError for a parameter that the scheme cannot store, for a
    library that this machine cannot run, and for samples that are longer than the model's texts may be."""
    listed = read_parameters(parameters)
    sample = first_samples(tokens for path in sorted(samples.iterdir()) for tokens in read_samples(path).samples)
    try:
        model = ObservedModel(
            library,
            read_observation(observation),
            ImportedParameters(shards, listed),
            threads=int((hints or {}).get("threads", 1)),
        )
    except UsageError as error:
        raise StageError(error.message, advice=error.advice) from error
    write_sensitivity(measure(ImportedShard(shard), listed, model, sample, scheme, encoder(scheme)), measured)
