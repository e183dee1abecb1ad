"""What CUDA graphs need of a module: a decoding step is recorded once and played back.

TVM's RewriteCUDAGraph cuts out the runs of kernels whose sizes are fixed. Where a size is known at run time only, a
graph is recorded for each of its values, if the function says so.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax

# Sizes that take few values while a model is served: a graph is kept for each.
CAPTURED_SIZES: Mapping[str, tuple[str, ...]] = {
    "batch_decode": ("batch_size",),
    "batch_verify": ("batch_size", "seq_len"),
}
ALLOCATION = "cuda_graph_alloc"
INITIALIZATION = "cuda_graph_alloc_init"


def attach_cuda_graph_hints(module: tvm.IRModule) -> tvm.IRModule:
    """AttachCUDAGraphSymbolicCaptureHints: mark the functions that are recorded for each value of a size."""
    functions = {}
    for variable, function in module.functions_items():
        sizes = CAPTURED_SIZES.get(str(variable.name_hint))
        if sizes is not None and isinstance(function, relax.Function):
            function = function.with_attr("relax.rewrite_cuda_graph.capture_symbolic_vars", list(sizes))
        functions[variable] = function
    return tvm.IRModule(functions, attrs=module.attrs)


def attach_memory_plan(module: tvm.IRModule) -> tvm.IRModule:
    """AttachMemoryPlanAttr: results of functions are planned too, where their sizes have bounds. What a graph writes
    then lies in memory that stays."""
    functions = {
        variable: function.with_attr("relax.memory_plan_dynamic_func_output", True)
        if isinstance(function, relax.Function) and "global_symbol" in function.attrs
        else function
        for variable, function in module.functions_items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def attach_cuda_graph_alloc_init(module: tvm.IRModule) -> tvm.IRModule:
    """AttachCUDAGraphAllocInitFunc: `cuda_graph_alloc_init`, by which an engine allocates what the graphs share before
    it measures what memory is left. A module without graphs stays as it is."""
    allocations = [variable for variable in module.get_global_vars() if variable.name_hint.startswith(ALLOCATION)]
    if not allocations:
        return module
    (allocation,) = allocations
    builder = relax.BlockBuilder(module)
    with builder.function(INITIALIZATION, []):
        cached = relax.op.call_builtin_with_ctx(
            "vm.builtin.cuda_graph.get_cached_alloc", [allocation, relax.prim_value(0)], ty_args=relax.AnyType()
        )
        builder.emit_func_output(builder.emit(cached))
    return builder.finalize()
