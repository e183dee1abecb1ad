"""Lower: the graph becomes bytecode of TVM's virtual machine.

Reads `graph` and `manifest` (of Partition), `signatures` (of every kernel; their bodies are not needed), `metadata` (of
Phase0), `model` (model.json of ConfigureModel, for its layers and the sizes that memory is planned for), unless the
graph is of no model of ours, and, for a model with a tokenizer, `vocabulary` (of ImportConfig): without it, all entries
of the model's vocabulary count as active.
Writes `executable` (the virtual machine's own binary form), `shape_functions` (an object file with the host functions
that compute sizes) and `metadata_out`, which is also what the function `_metadata` of the library returns.
`phases.phase5` lists its passes, `passes.phase5` has their code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler import metadata as metadata_file
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.kernel_description import KernelDescription
from mlcbuild.compiler.manifest import read_manifest
from mlcbuild.compiler.models.description import read_model
from mlcbuild.compiler.passes.attach_metadata import attached_metadata
from mlcbuild.compiler.passes.canonical_shape_functions import canonical_shape_function
from mlcbuild.compiler.passes.phase5 import PASSES
from mlcbuild.compiler.phases.phase5 import PHASE5
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext, Run, apply
from mlcbuild.compiler.phases.placed import added_passes
from mlcbuild.compiler.signature import Signature
from mlcbuild.compiler.tokenizer.vocabulary import read_vocabulary
from mlcbuild.errors import StageError


def run(
    *,
    graph: Path,
    manifest: Path,
    signatures: Sequence[Path],
    metadata: Path,
    executable: Path,
    shape_functions: Path,
    metadata_out: Path,
    target: dict[str, Any],
    cuda_graph: bool,
    model: Path | None = None,
    vocabulary: Path | None = None,
    backend: Passes | None = None,
    passes: Sequence[Run] = (),
    places: Sequence[Mapping[str, str]] = (),
) -> None:
    """With `cuda_graph` decoding on a GPU is recorded once and replayed. `backend` has the passes that run in place of
    the common ones; `passes` are a workspace's, which run at `places` (`phases.placed.added_passes`).

    Raises StageError for signatures that are not those of the graph's kernels.
    """
    document = metadata_file.read(metadata)
    description = read_model(model) if model is not None else None
    if description is not None:
        rows = description.vocab_size
        # A tokenizer with more tokens than the model has is an error of the package, not of the library.
        active = rows if vocabulary is None else min(rows, read_vocabulary(vocabulary).active_size)
        document |= asdict(description.sizes) | {"active_vocab_size": active}
    document.pop(metadata_file.SHOWN_LAYERS, None)
    module = ir.load_module(graph)
    kernels = _kernel_names(module)
    read = _read_signatures(kernels, signatures)
    document[metadata_file.KERNELS] = _named_by_source(read, manifest)
    context = PhaseContext(
        target=targets.parse(target),
        metadata=document,
        sizes=description.sizes if description else None,
        layers=description.layers if description else None,
        parameters=tuple(parameter["name"] for parameter in document.get("params", [])),
        signatures=read,
        cuda_graph=cuda_graph,
    )
    added = added_passes(passes, places)
    lowered = apply(module, PHASE5, context, common=PASSES, backend=backend, added=added)
    remaining = _generate(lowered, context.target, executable)
    _compile_host_functions(remaining, kernels, shape_functions, context.target)
    metadata_out.write_text(attached_metadata(lowered) + "\n", encoding="utf-8")


def _kernel_names(module: tvm.IRModule) -> frozenset[str]:
    return frozenset(
        str(variable.name_hint)
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc)
    )


def _read_signatures(kernels: frozenset[str], paths: Sequence[Path]) -> dict[str, Signature]:
    """The signatures by kernel. Raises StageError unless they are those of `kernels`."""
    found = {signature.name: signature for signature in map(Signature.read, paths)}
    for name in sorted(kernels ^ frozenset(found)):
        problem = "has no signature" if name in kernels else "is not a kernel of this graph"
        raise StageError(f"{name} {problem}")
    return found


def _named_by_source(signatures: Mapping[str, Signature], manifest: Path) -> dict[str, list[str]]:
    """The names that people read of all kernels, by where these come from."""
    try:
        described = read_manifest(manifest.read_bytes())["descriptions"]
        names = {name: KernelDescription.read(described[name]).text(name) for name in signatures}
    except (ValueError, KeyError) as error:
        raise StageError(f"{manifest.name} does not describe the kernels of this graph") from error
    by_source: dict[str, list[str]] = {}
    for name in sorted(signatures, key=names.__getitem__):
        by_source.setdefault(signatures[name].source, []).append(names[name])
    return by_source


def _generate(module: tvm.IRModule, target: tvm.target.Target, path: Path) -> tvm.IRModule:
    """Write the bytecode of the Relax functions; the module that is returned has the other functions."""
    builder = relax.ExecBuilder()
    remaining = relax.vm_build._vmcodegen(builder, module, "bytecode")
    relax._ffi_api.VMLink(builder, target, None, [], {}).write_to_file(str(path))
    return remaining


def _compile_host_functions(
    module: tvm.IRModule, kernels: frozenset[str], path: Path, target: tvm.target.Target
) -> None:
    functions = {
        tvm.ir.GlobalVar(str(variable.name_hint)): canonical_shape_function(function)
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc) and str(variable.name_hint) not in kernels
    }
    host = target.host if target.host is not None else target
    with host:
        tvm.tirx.build(tvm.IRModule(functions), target=host).write_to_file(str(path), "o")
