"""ListMadeParameters: the list by which Quantize reads calibrated shards, which have parameters by the package's names.

Reads `parameters` (parameters.json) and writes the list `made` (`calibration.made_parameters`).
"""

from __future__ import annotations

from pathlib import Path

from mlcbuild.compiler.calibration.made_parameters import made as made_of
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters, write_parameters


def run(*, parameters: Path, made: Path) -> None:
    """Raises StageError for a file that is no list."""
    write_parameters(made_of(read_parameters(parameters)), made)
