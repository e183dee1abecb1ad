"""ApplyScales: one imported shard becomes one with a calibration's scales and limits carried out.

Reads `shard` (safetensors, Hugging Face names), `parameters` (parameters.json) and `scales` (`calibration.scales`).
Writes `calibrated`: parameters by MLC-LLM's names (`calibration.made_parameters`), which Quantize takes. One parameter,
or expert, is in memory at a time.
"""

from __future__ import annotations

from pathlib import Path

from mlcbuild.compiler.calibration.made_parameters import write_made_shard
from mlcbuild.compiler.calibration.scales import Scaling, read_scales
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.compiler.weights.imported_shard import ImportedShard


def run(*, shard: Path, parameters: Path, scales: Path, calibrated: Path) -> None:
    """Raises StageError for a shard that has a part of a parameter, and for numbers that are not finite."""
    listed = read_parameters(parameters)
    change = Scaling(found=read_scales(scales), smoothed=listed.smoothed)
    write_made_shard(calibrated, ImportedShard(shard), listed, change)
