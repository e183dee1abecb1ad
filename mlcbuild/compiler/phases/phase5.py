"""Phase5: memory is planned, and the graph becomes what the virtual machine runs; Lower does both."""

from __future__ import annotations

from tvm.relax import transform

from mlcbuild.compiler.passes.attach_cuda_graph import attach_cuda_graph_alloc_init
from mlcbuild.compiler.phases.pipeline import Entry, of_tvm, on_gpu, own

PHASE5: tuple[Entry, ...] = (
    Entry(name="LiftTIRGlobalBufferAlloc", where="ScheduleKernel"),
    Entry(name="ForceNarrowIndexToInt32", where="ScheduleKernel"),
    Entry(name="ScatterTupleGetItem"),
    Entry(name="PipelineParallelRewrite"),
    Entry(name="ToNonDataflow", run=of_tvm(transform.ToNonDataflow)),
    Entry(name="RemovePurityChecking", run=of_tvm(transform.RemovePurityChecking)),
    Entry(name="CallTIRRewrite", run=of_tvm(transform.CallTIRRewrite)),
    Entry(name="IPCAllReduceRewrite"),
    Entry(name="StaticPlanBlockMemory", run=of_tvm(transform.StaticPlanBlockMemory)),
    Entry(name="AttachMetadataWithMemoryUsage", where="Lower"),
)

PHASE5_VM: tuple[Entry, ...] = (
    Entry(name="RewriteCUDAGraph", run=on_gpu(of_tvm(transform.RewriteCUDAGraph))),
    Entry(name="AttachCUDAGraphAllocInitFunc", run=on_gpu(own(attach_cuda_graph_alloc_init))),
    Entry(name="LowerGPUIPCAllocStorage"),
    Entry(name="LowerAllocTensor", run=of_tvm(transform.LowerAllocTensor)),
    Entry(name="KillAfterLastUse", run=of_tvm(transform.KillAfterLastUse)),
    Entry(name="LowerRuntimeBuiltin", run=of_tvm(transform.LowerRuntimeBuiltin)),
    Entry(name="VMShapeLower", run=of_tvm(lambda: transform.VMShapeLower(emit_err_ctx=False))),
    Entry(name="AttachGlobalSymbol", run=of_tvm(transform.AttachGlobalSymbol)),
    Entry(name="AttachExternModules"),
)
