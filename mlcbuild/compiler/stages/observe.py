"""Observe: what the matrices of a model are multiplied by, while it reads a shard of the sample.

Reads `samples` (of SampleTexts), `shards` (of ImportWeights, or MergeLora), `parameters` (parameters.json), and of the
library of ExportObserved `library` and `observation`. Writes the folder `statistics` (`calibration.statistics`).

The model reads all samples of the shard layer by layer: the weights of one layer are in memory at a time, and between
layers the hidden states of all samples. Every token is the text's own; nothing is sampled. How many threads compute
changes nothing of the result.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.compiler.calibration.forward_pass import ObservedModel
from mlcbuild.compiler.calibration.imported_parameters import ImportedParameters
from mlcbuild.compiler.calibration.observation import read_observation
from mlcbuild.compiler.calibration.samples import read_samples
from mlcbuild.compiler.calibration.statistics import ObservedInput, write_index, write_input
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.errors import StageError, UsageError

_LINES = 10  # of progress in the log


def run(
    *,
    samples: Path,
    shards: Sequence[Path],
    parameters: Path,
    library: Path,
    observation: Path,
    statistics: Path,
    hints: Mapping[str, Any] | None = None,
) -> None:
    """Raises StageError for a library that this machine cannot run, for samples that are longer than the model's texts
    may be, and for weights or inputs that are not finite."""
    sample = read_samples(samples).samples
    weights = ImportedParameters(shards, read_parameters(parameters))
    try:
        model = ObservedModel(
            library, read_observation(observation), weights, threads=int((hints or {}).get("threads", 1))
        )
    except UsageError as error:
        raise StageError(error.message, advice=error.advice) from error
    statistics.mkdir(parents=True, exist_ok=True)
    found: list[ObservedInput] = []
    begin = time.monotonic()
    for done, (inputs, total) in enumerate(model.observed(sample), 1):
        for described, sums in inputs:
            file = f"{described.matrices[0]}.safetensors"
            write_input(statistics / file, gram=sums.gram, absolute_sum=sums.absolute_sum, maximum=sums.maximum)
            found.append(ObservedInput(file=file, matrices=described.matrices, width=described.width, rows=sums.rows))
        inputs.clear()  # before the next layer is read
        if done * _LINES // total > (done - 1) * _LINES // total:
            print(f"step {done} of {total}, {time.monotonic() - begin:.0f} s", flush=True)
    write_index(statistics, tokens=sum(map(len, sample)), inputs=found)
