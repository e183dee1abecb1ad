"""Export: a model's configuration becomes a Relax module.

Reads `config` (config.json). Writes `module` (IR, high-level operators) and `metadata` (JSON). It knows no
target and needs no weights, so that every library of a model and quantization shares it. Sizes that a library may
override are left to Lower.
"""

from __future__ import annotations

from pathlib import Path

from mlcbuild.compiler import ir
from mlcbuild.compiler import metadata as metadata_file
from mlcbuild.compiler.models.config import read_document
from mlcbuild.compiler.models.families import read_config
from mlcbuild.compiler.models.registry import build_model
from mlcbuild.compiler.quantization import scheme as schemes


def run(*, config: Path, module: Path, metadata: Path, quantization: str) -> None:
    """Raises StageError for an unsupported model type or quantization, a bad configuration, and a group size
    that does not divide a matrix."""
    scheme = schemes.named(quantization)
    model_config = read_config(read_document(config), where=config.name)
    model = build_model(model_config, scheme)
    exported, parameters = model.export_tvm(spec=model.specification())
    ir.save_module(exported, module)
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
            for name, parameter in parameters
        ],
    }
    metadata_file.write(document, metadata)
