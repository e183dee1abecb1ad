"""Export: a model's configuration becomes a Relax module.

Reads `config` (config.json). Writes `module` (IR, high-level operators), which shows two of many equal layers (see
`models.repetition`), and `metadata` (JSON), which names the parameters of all. It knows no target and needs no weights,
so that every library of a model and quantization shares it. Sizes that a library may override are left to Lower.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mlcbuild.compiler import ir
from mlcbuild.compiler import metadata as metadata_file
from mlcbuild.compiler.models.config import read_document
from mlcbuild.compiler.models.families import read_config
from mlcbuild.compiler.models.registry import build_model
from mlcbuild.compiler.models.repetition import SHOWN, Repetition, repeated_names
from mlcbuild.compiler.quantization.reader import Reader
from mlcbuild.compiler.quantization.scheme import QuantizationScheme


def run(
    *,
    config: Path,
    module: Path,
    metadata: Path,
    scheme: QuantizationScheme,
    reader: Callable[[QuantizationScheme], Reader],
) -> None:
    """`scheme` and its `reader` are plug-ins. Raises StageError for an unsupported model type, a bad configuration, and
    a matrix that the scheme cannot store."""
    model_config = read_config(read_document(config), where=config.name)
    layers = model_config.num_hidden_layers
    model = build_model(model_config, reader(scheme), layers=min(layers, SHOWN))
    exported, parameters = model.export_tvm(spec=model.specification())
    ir.save_module(exported, module)
    names = repeated_names([name for name, _ in parameters], layers)
    repetition = Repetition.of(names)
    stand_ins = [parameters[repetition.stand_in(place)][1] for place in range(len(names))]
    document: dict[str, object] = {
        "model_type": model_config.model_type,
        "quantization": scheme.name,
        "pipeline_parallel_stages": 1,
        "disaggregation": False,
        "kv_state_kind": "kv_cache",
        "vocab_size": model_config.vocab_size,
        "active_vocab_size": model_config.vocab_size,
        "model_task": "chat",
        "params": [
            {
                "name": name,
                "shape": [int(size) for size in parameter.shape],
                "dtype": str(parameter.dtype),
                "preprocs": [],
                "pipeline_stages": [0],
            }
            for name, parameter in zip(names, stand_ins, strict=True)
        ],
    }
    metadata_file.write(document, metadata)
