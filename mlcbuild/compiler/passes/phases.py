"""Which passes run in which phase.

Every pass of MLC-LLM's pipeline has a place here, in its order, so that a new target or model adds a pass
where it belongs. `run` is None for a pass that nothing supported needs yet, or that another stage runs: then
`where` names the stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.relax import backend, transform

from mlcbuild.compiler.passes.attach_cuda_graph import (
    attach_cuda_graph_alloc_init,
    attach_cuda_graph_hints,
    attach_memory_plan,
)
from mlcbuild.compiler.passes.attach_softmax_with_temperature import attach_softmax_with_temperature
from mlcbuild.compiler.passes.clean_up_tir_attributes import clean_up_tir_attributes
from mlcbuild.compiler.passes.dispatch_kv_cache_creation import dispatch_kv_cache_creation
from mlcbuild.compiler.passes.fuse_dequantize import (
    fuse_dequantize_matmul_ewise,
    fuse_dequantize_take,
)
from mlcbuild.compiler.passes.fuse_transpose_matmul import fuse_transpose_matmul


@dataclass(frozen=True, kw_only=True)
class PhaseContext:
    """What a pass may depend on besides the module. Vocabularies are known to Phase0 alone."""

    target: tvm.target.Target
    vocab_size: int = 0
    active_vocab_size: int = 0

    @property
    def on_gpu(self) -> bool:
        return bool(self.target.kind.name == "cuda")


Run = Callable[[tvm.IRModule, PhaseContext], tvm.IRModule]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One pass of the pipeline, by MLC-LLM's or TVM's name."""

    name: str
    run: Run | None = None
    where: str = ""


def _tvm(make: Callable[[], Any]) -> Run:
    """A pass of TVM's own that takes no arguments."""

    def run(module: tvm.IRModule, _context: PhaseContext) -> tvm.IRModule:
        return make()(module)

    return run


def _on_gpu(run: Run) -> Run:
    """A pass that leaves modules for other targets as they are."""

    def conditional(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
        return run(module, context) if context.on_gpu else module

    return conditional


def _softmax(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    return attach_softmax_with_temperature(
        module, vocab_size=context.vocab_size, active_vocab_size=context.active_vocab_size
    )


PHASE0: tuple[Entry, ...] = (
    Entry(
        name="DispatchKVCacheCreation",
        run=lambda module, context: dispatch_kv_cache_creation(module, context.target),
    ),
    Entry(
        name="AttachSoftmaxWithTemperature",
        run=_softmax,
    ),
    Entry(name="AttachVariableBounds", where="Lower"),
    Entry(name="AttachCUDAGraphSymbolicCaptureHints", run=_on_gpu(lambda module, _: attach_cuda_graph_hints(module))),
    Entry(name="AttachPipelineParallelStages"),
    Entry(name="AttachLogitProcessFunc"),
    Entry(name="AttachAdditionalPrimFuncs"),
    Entry(name="AttachAllocEmbeddingTensorFunc", where="Lower"),
    Entry(name="AttachGPUSamplingFunc"),
    Entry(name="AttachSpecDecodeAuxFuncs"),
    Entry(name="AttachMemoryPlanAttr", run=_on_gpu(lambda module, _: attach_memory_plan(module))),
    Entry(name="AttachSequenceLengthPaddingFactor"),
    Entry(name="BindTarget", where="ScheduleKernel"),
)

PHASE1: tuple[Entry, ...] = (
    Entry(name="DispatchTritonKernel"),
    Entry(name="FuseFTDequantizeEpilogue"),
    Entry(name="FuseDequantizeTranspose"),
    Entry(name="BLASDispatch"),
    Entry(name="FuseAddRMSNorm"),
    Entry(name="FuseTransposeMatmul", run=lambda module, _: fuse_transpose_matmul(module)),
)

PHASE2: tuple[Entry, ...] = (
    Entry(name="DispatchSampling", run=_tvm(backend.DispatchSampling)),
    Entry(name="DispatchSortScan", run=_tvm(backend.DispatchSortScan)),
    Entry(name="LegalizeOps", run=_tvm(transform.LegalizeOps)),
    Entry(name="AnnotateTIROpPattern", run=_tvm(transform.AnnotateTIROpPattern)),
    Entry(name="FoldConstant", run=_tvm(transform.FoldConstant)),
    Entry(name="FuseOps", run=_tvm(transform.FuseOps)),
    Entry(name="FuseTIR", run=_tvm(transform.FuseTIR)),
)

PHASE3: tuple[Entry, ...] = (
    Entry(name="FuseDequantizeMatmulEwise", run=lambda module, _: fuse_dequantize_matmul_ewise(module)),
    Entry(name="FuseDequantizeTake", run=lambda module, _: fuse_dequantize_take(module)),
    Entry(name="DeadCodeElimination", run=_tvm(transform.DeadCodeElimination)),
    # It reads the bodies of kernels, which the graph no longer has once it is partitioned.
    Entry(name="RewriteDataflowReshape", run=_tvm(transform.RewriteDataflowReshape)),
    Entry(name="CleanUpTIRAttrs", run=lambda module, _: clean_up_tir_attributes(module, ("op_pattern",))),
)

PHASE4: tuple[Entry, ...] = (
    Entry(name="LowBatchGemvSpecialize", where="ScheduleKernel"),
    Entry(name="ApplyDefaultSchedule", where="ScheduleKernel"),
)

PHASE5: tuple[Entry, ...] = (
    Entry(name="LiftTIRGlobalBufferAlloc", where="ScheduleKernel"),
    Entry(name="ForceNarrowIndexToInt32", where="ScheduleKernel"),
    Entry(name="ScatterTupleGetItem"),
    Entry(name="PipelineParallelRewrite"),
    Entry(name="ToNonDataflow", run=_tvm(transform.ToNonDataflow)),
    Entry(name="RemovePurityChecking", run=_tvm(transform.RemovePurityChecking)),
    Entry(name="CallTIRRewrite", run=_tvm(transform.CallTIRRewrite)),
    Entry(name="IPCAllReduceRewrite"),
    Entry(name="StaticPlanBlockMemory", run=_tvm(transform.StaticPlanBlockMemory)),
    Entry(name="AttachMetadataWithMemoryUsage", where="Lower"),
)

PHASE5_VM: tuple[Entry, ...] = (
    Entry(name="RewriteCUDAGraph", run=_on_gpu(_tvm(transform.RewriteCUDAGraph))),
    Entry(name="AttachCUDAGraphAllocInitFunc", run=_on_gpu(lambda module, _: attach_cuda_graph_alloc_init(module))),
    Entry(name="LowerGPUIPCAllocStorage"),
    Entry(name="LowerAllocTensor", run=_tvm(transform.LowerAllocTensor)),
    Entry(name="KillAfterLastUse", run=_tvm(transform.KillAfterLastUse)),
    Entry(name="LowerRuntimeBuiltin", run=_tvm(transform.LowerRuntimeBuiltin)),
    Entry(name="VMShapeLower", run=_tvm(lambda: transform.VMShapeLower(emit_err_ctx=False))),
    Entry(name="AttachGlobalSymbol", run=_tvm(transform.AttachGlobalSymbol)),
    Entry(name="AttachExternModules"),
)


def apply(module: tvm.IRModule, entries: tuple[Entry, ...], context: PhaseContext) -> tvm.IRModule:
    """The module after the entries' passes, in order."""
    config = {"relax.backend.use_cuda_graph": True} if context.on_gpu else {}
    with context.target, tvm.transform.PassContext(opt_level=3, config=config):
        for entry in entries:
            if entry.run is not None:
                module = entry.run(module, context)
    return module
