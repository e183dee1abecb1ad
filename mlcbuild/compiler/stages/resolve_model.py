"""ResolveModel: a `config.json` is read by its family, once for all stages.

Reads `config` (config.json). Writes `model` (model.json, see `models.description`) and `parameters` (parameters.json,
see `checkpoints.parameters`). The families, and the formats of quantized checkpoints, are given as plug-ins.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcbuild.compiler.models.checkpoints.parameters import write_parameters
from mlcbuild.compiler.models.description import write_model
from mlcbuild.compiler.models.resolving import AnyFamily, resolve_config
from mlcbuild.compiler.weights.checkpoint_format import AnyFormat


def run(
    *, config: Path, model: Path, parameters: Path, families: Sequence[AnyFamily], formats: Sequence[AnyFormat]
) -> None:
    """Raises StageError for a file that is no JSON object, a model type of no family, and fields that its family, or
    the format of its weights, refuses."""
    description, listed = resolve_config(config.read_bytes(), families, formats, where=str(config))
    write_model(description, model)
    write_parameters(listed, parameters)
