"""ReadGraph: a graph that TVM's frontend made in an environment becomes the pipeline's own.

Reads `graph` (TVM's JSON) and `description` of ImportOnnx. Writes `module` (the same without places in the source) and
`metadata` (the names, shapes and types of its weights).
"""

from __future__ import annotations

from pathlib import Path

import tvm

from mlcbuild.compiler import ir
from mlcbuild.compiler import metadata as metadata_file
from mlcbuild.errors import StageError


def run(*, graph: Path, description: Path, module: Path, metadata: Path) -> None:
    """Raises StageError for a graph of another version of TVM, and for files that hold none."""
    described = metadata_file.read(description)
    if (found := described.get("tvm")) != tvm.__version__:
        raise StageError(
            f"TVM {found} imported the model, and mlcbuild has TVM {tvm.__version__}",
            advice=(f"lock apache-tvm=={tvm.__version__} in the environment",),
        )
    ir.save_module(ir.load_module(graph), module)
    metadata_file.write({"params": described["params"]}, metadata)
