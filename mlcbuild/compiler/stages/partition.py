"""Partition: the graph and its kernels part.

Reads `module` (after Phase3) and `metadata` (of Phase0, for the names of parameters and the numbers of the layers
shown). Writes `graph` (the Relax functions, each kernel a stub that has its content's name and its signature, and no
body), `kernels` (a directory with `<name>.json` for each distinct kernel) and `manifest` (the names of the kernels,
their descriptions for people and programs, and the device kernels that they start and that are compiled on their own).
Equal kernels, whatever their names, become one.
"""

from __future__ import annotations

from pathlib import Path

from mlcbuild.compiler import ir
from mlcbuild.compiler import metadata as metadata_file
from mlcbuild.compiler.manifest import write_manifest
from mlcbuild.compiler.passes.describe_kernels import describe_kernels
from mlcbuild.compiler.passes.partition_kernels import partition_kernels


def run(*, module: Path, metadata: Path, graph: Path, kernels: Path, manifest: Path) -> None:
    """Raises StageError for a file that holds no module, or no metadata."""
    whole = ir.load_module(module)
    document = metadata_file.read(metadata)
    parameters = [str(parameter["name"]) for parameter in document.get("params", [])]
    partitioned = partition_kernels(whole)
    descriptions = describe_kernels(
        whole, partitioned.names, parameters, layers=document.get(metadata_file.SHOWN_LAYERS, [])
    )
    kernels.mkdir(parents=True, exist_ok=True)
    for kernel in partitioned.kernels:
        (kernels / f"{kernel.name}.json").write_bytes(kernel.data)
    ir.save_module(partitioned.graph, graph)
    started = {kernel.name: kernel.device_kernels for kernel in partitioned.kernels if kernel.device_kernels}
    write_manifest(
        manifest,
        {
            "kernels": [kernel.name for kernel in partitioned.kernels],
            "descriptions": {name: description.written() for name, description in descriptions.items()},
            **({"device_kernels": started} if started else {}),
        },
    )
