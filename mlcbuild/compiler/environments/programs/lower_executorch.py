"""`exported` (a torch.export program with its weights) → `lowered`: ExecuTorch's program. Needs torch and executorch.

With the backend XNNPACK what it has kernels for is handed to it, and it chooses its kernels when the program is loaded:
the program is for all processors.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path


def run(*, exported: Path, lowered: Path, backend: str) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(os.environ["TMPDIR"], "inductor").resolve())
    warnings.simplefilter("ignore")
    import torch
    from executorch.exir import to_edge_transform_and_lower

    partitioners = []
    if backend == "xnnpack":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        partitioners.append(XnnpackPartitioner())
    try:
        program = to_edge_transform_and_lower(torch.export.load(str(exported)), partitioner=partitioners)
        content = program.to_executorch().buffer
    except Exception as error:
        told = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise SystemExit(f"ExecuTorch cannot lower the model: {told}") from None
    lowered.write_bytes(content)
