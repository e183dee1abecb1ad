"""The passes of Phase5 that serve every backend. Those of sizes and layers leave the graph of no model as it is."""

from __future__ import annotations

import tvm
from tvm.relax import transform

from mlcbuild.compiler.models.layers.context_window import UNKNOWN
from mlcbuild.compiler.passes.add_workspaces import add_workspaces
from mlcbuild.compiler.passes.attach_alloc_embedding_tensor import attach_alloc_embedding_tensor
from mlcbuild.compiler.passes.attach_metadata import attach_metadata
from mlcbuild.compiler.passes.attach_variable_bounds import attach_variable_bounds
from mlcbuild.compiler.passes.inline_private_functions import inline_private_functions
from mlcbuild.compiler.passes.memory_usage import memory_usage
from mlcbuild.compiler.passes.repeat_layers import repeat_layers
from mlcbuild.compiler.passes.set_active_vocab_size import set_active_vocab_size
from mlcbuild.compiler.passes.write_number import write_number
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext, module_pass, tvm_pass


def _repeated(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    return module if context.layers is None else repeat_layers(module, context.parameters, context.layers)


def _workspaces(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    stubs = {name: signature.stub() for name, signature in context.signatures.items() if signature.workspace}
    return add_workspaces(module, stubs)


def _alloc_embedding_tensor(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    if context.sizes is None:
        return module
    return attach_alloc_embedding_tensor(module, prefill_chunk_size=context.sizes.prefill_chunk_size)


def _metadata(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    return attach_metadata(module, {**context.metadata, "memory_usage": memory_usage(module)})


def _active_vocab_size(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    if context.sizes is None:
        return module
    return set_active_vocab_size(module, context.metadata["active_vocab_size"])


def _context_window(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    if context.sizes is None:
        return module
    return write_number(module, unknown=UNKNOWN, known=context.sizes.context_window_size)


def _variable_bounds(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    return module if context.sizes is None else attach_variable_bounds(module, context.sizes)


PASSES: Passes = {
    "SetActiveVocabSize": _active_vocab_size,
    "SetContextWindow": _context_window,
    "RepeatLayers": _repeated,
    "InlinePrivateFunctions": module_pass(inline_private_functions),
    "Normalize": tvm_pass(transform.Normalize),
    "CanonicalizeBindings": tvm_pass(transform.CanonicalizeBindings),
    "AddWorkspaces": _workspaces,
    "AttachAllocEmbeddingTensorFunc": _alloc_embedding_tensor,
    "AttachVariableBounds": _variable_bounds,
    "ToNonDataflow": tvm_pass(transform.ToNonDataflow),
    "RemovePurityChecking": tvm_pass(transform.RemovePurityChecking),
    "CallTIRRewrite": tvm_pass(transform.CallTIRRewrite),
    "StaticPlanBlockMemory": tvm_pass(transform.StaticPlanBlockMemory),
    "AttachMetadataWithMemoryUsage": _metadata,
    "LowerAllocTensor": tvm_pass(transform.LowerAllocTensor),
    "KillAfterLastUse": tvm_pass(transform.KillAfterLastUse),
    "LowerRuntimeBuiltin": tvm_pass(transform.LowerRuntimeBuiltin),
    "VMShapeLower": tvm_pass(lambda: transform.VMShapeLower(emit_err_ctx=False)),
    "AttachGlobalSymbol": tvm_pass(transform.AttachGlobalSymbol),
}
