"""Partition: the graph and its kernels part.

Reads `module` (after Phase3). Writes `graph` (the Relax functions, each kernel a stub that has its content's name and
its signature, and no body), `kernels` (a directory with `<name>.json` for each distinct kernel) and `manifest`
(the names of the kernels). Equal kernels, whatever their names, become one.
"""

from __future__ import annotations

from pathlib import Path

from mlcbuild.compiler import ir
from mlcbuild.compiler.manifest import write_manifest
from mlcbuild.compiler.passes.partition_kernels import partition_kernels


def run(*, module: Path, graph: Path, kernels: Path, manifest: Path) -> None:
    """Raises StageError for a file that holds no module."""
    partitioned = partition_kernels(ir.load_module(module))
    kernels.mkdir(parents=True, exist_ok=True)
    for kernel in partitioned.kernels:
        (kernels / f"{kernel.name}.json").write_bytes(kernel.data)
    ir.save_module(partitioned.graph, graph)
    write_manifest(manifest, {"kernels": [kernel.name for kernel in partitioned.kernels]})
