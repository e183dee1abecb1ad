"""MergeScales: what all SearchScales found becomes one file, for ApplyScales.

Reads `found` (`calibration.scales`, of every group) and `parameters` (parameters.json). Writes `scales`: those of
inputs and of matrices in the order of the list, whatever the groups were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from mlcbuild.compiler.calibration.scales import Scales, read_scales, write_scales
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters

Value = TypeVar("Value")


def run(*, found: Sequence[Path], parameters: Path, scales: Path) -> None:
    """Raises StageError for a damaged file."""
    order = [parameter.name for parameter in read_parameters(parameters).parameters]
    parts = [read_scales(path) for path in found]

    def merged(maps: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
        together = {name: value for one in maps for name, value in one.items()}
        return {name: together[name] for name in order if name in together}

    write_scales(
        scales,
        Scales(scales=merged([one.scales for one in parts]), clipping=merged([one.clipping for one in parts])),
    )
