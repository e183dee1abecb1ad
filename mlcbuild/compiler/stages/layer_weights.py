"""LayerWeights: the weights of one layer as safetensors in float32, by their names below the layer.

Reads `graph` of ExportLayer, `parameters` (parameters.json) and `shards` of ImportWeights. Writes `weights`. What a
checkpoint has quantized is restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mlcbuild.compiler.calibration.imported_parameters import ImportedParameters
from mlcbuild.compiler.layer_graph.graph import read_graph
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.compiler.weights.safetensors_file import write_safetensors
from mlcbuild.compiler.weights.tensor import Tensor, TensorDescription
from mlcbuild.errors import StageError


def run(*, graph: Path, parameters: Path, shards: Sequence[Path], weights: Path) -> None:
    """Raises StageError for weights that are missing, of another shape, or not finite."""
    layer = read_graph(graph)
    imported = ImportedParameters(shards, read_parameters(parameters))

    def read(described: TensorDescription) -> Tensor:
        numbers = imported.numbers(layer.prefix + described.name).astype(np.float32, copy=False)
        if numbers.shape != described.shape:
            raise StageError(f"{layer.prefix}{described.name} is {numbers.shape} in the list, {described.shape} here")
        return Tensor(description=described, data=numbers)

    described = [
        TensorDescription(name=weight.name, dtype="float32", shape=weight.value.shape)
        for weight in sorted(layer.weights, key=lambda weight: weight.name)
    ]
    write_safetensors(weights, described, read)
