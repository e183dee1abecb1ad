"""Lower: the graph becomes bytecode of TVM's virtual machine.

Reads `graph` (of Partition), `signatures` (of every kernel; their bodies are not needed), `metadata` (of Phase0) and
`config` (config.json, for the sizes that memory is planned for).
Writes `executable` (the virtual machine's own binary form), `shape_functions` (an object file with the host functions
that compute sizes) and `metadata_out`, which is also what the function `_metadata` of the library returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler import metadata as metadata_file
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.models.config import read_document
from mlcbuild.compiler.models.families import read_config
from mlcbuild.compiler.models.sizes import LibrarySizes
from mlcbuild.compiler.passes.add_workspaces import add_workspaces
from mlcbuild.compiler.passes.attach_alloc_embedding_tensor import attach_alloc_embedding_tensor
from mlcbuild.compiler.passes.attach_variable_bounds import attach_variable_bounds
from mlcbuild.compiler.passes.canonical_shape_functions import canonical_shape_function
from mlcbuild.compiler.passes.inline_private_functions import inline_private_functions
from mlcbuild.compiler.passes.memory_usage import memory_usage
from mlcbuild.compiler.passes.repeat_layers import repeat_layers
from mlcbuild.compiler.phases.phase5 import PHASE5, PHASE5_VM
from mlcbuild.compiler.phases.pipeline import PhaseContext, apply
from mlcbuild.compiler.signature import Signature
from mlcbuild.errors import StageError

_POSITIONS_A_SEQUENCE = 6  # of the order of tokens, whose probabilities an engine asks for together


def run(
    *,
    graph: Path,
    signatures: Sequence[Path],
    metadata: Path,
    config: Path,
    executable: Path,
    shape_functions: Path,
    metadata_out: Path,
    target: dict[str, Any],
    cuda_graph: bool,
    overrides: dict[str, Any],
) -> None:
    """`overrides` are the sizes of `models.config.Overrides`; they change memory plans, never a kernel. With
    `cuda_graph` decoding on a GPU is recorded once and replayed.

    Raises StageError for a bad override, and for signatures that are not those of the graph's kernels.
    """
    context = PhaseContext(target=targets.parse(target), cuda_graph=cuda_graph)
    sizes = read_config(read_document(config), overrides=overrides, where=config.name).sizes
    document = metadata_file.read(metadata) | asdict(sizes)
    module = ir.load_module(graph)
    kernels = _kernel_names(module)
    known = _read_signatures(kernels, signatures)
    module = repeat_layers(module, [parameter["name"] for parameter in document.get("params", [])])
    module = inline_private_functions(module)
    module = add_workspaces(module, {name: one.stub() for name, one in known.items() if one.workspace})
    module = attach_alloc_embedding_tensor(module, prefill_chunk_size=sizes.prefill_chunk_size)
    module = attach_variable_bounds(module, _bounds(sizes))
    module = apply(module, PHASE5, context)
    document["memory_usage"] = memory_usage(module)
    module["_metadata"] = _constant_function(metadata_file.canonical(document))
    module = apply(module, PHASE5_VM, context)
    builder = relax.ExecBuilder()
    remaining = relax.vm_build._vmcodegen(builder, module, "bytecode")
    program = relax._ffi_api.VMLink(builder, context.target, None, [], {})
    program.write_to_file(str(executable))
    _compile_host_functions(remaining, kernels, shape_functions, context.target)
    metadata_file.write(document, metadata_out)


def _bounds(sizes: LibrarySizes) -> dict[str, int]:
    """The largest value of each symbolic size, by its name in the entry functions."""
    bounds = {
        "seq_len": sizes.prefill_chunk_size,
        "batch_size": sizes.max_batch_size,
        "num_samples": sizes.max_batch_size,
        "num_positions": _POSITIONS_A_SEQUENCE * sizes.max_batch_size,
    }
    if sizes.sliding_window_size > 0:
        bounds["rolling_cache_len"] = sizes.sliding_window_size
        bounds["kv_seq_len"] = sizes.sliding_window_size + sizes.prefill_chunk_size
    else:
        bounds["total_seq_len"] = sizes.context_window_size
    return bounds


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


def _constant_function(text: str) -> relax.Function:
    """A function without parameters that returns a string."""
    builder = relax.BlockBuilder()
    with builder.function("constant", []):
        builder.emit_func_output(tvm.ir.StringImm(text))
    function = builder.get()["constant"]
    return function.with_attr("global_symbol", "_metadata")


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
