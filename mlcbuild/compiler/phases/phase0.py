"""Phase0: what the model does not say itself is attached: its cache, softmax and sampling."""

from __future__ import annotations

import tvm

from mlcbuild.compiler.passes.attach_cuda_graph import attach_cuda_graph_hints, attach_memory_plan
from mlcbuild.compiler.passes.attach_draft_functions import attach_draft_functions
from mlcbuild.compiler.passes.attach_gpu_sampling import attach_gpu_sampling
from mlcbuild.compiler.passes.attach_logit_processing import attach_logit_processing
from mlcbuild.compiler.passes.attach_softmax_with_temperature import (
    attach_softmax_in_chunks,
    attach_softmax_with_temperature,
)
from mlcbuild.compiler.passes.dispatch_kv_cache_creation import dispatch_kv_cache_creation
from mlcbuild.compiler.phases.pipeline import Entry, PhaseContext, on_gpu, own


def _softmax(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    attach = attach_softmax_in_chunks if context.on_gpu else attach_softmax_with_temperature
    return attach(module, vocab_size=context.vocab_size, active_vocab_size=context.active_vocab_size)


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
    Entry(name="AttachCUDAGraphSymbolicCaptureHints", run=on_gpu(own(attach_cuda_graph_hints))),
    Entry(name="AttachPipelineParallelStages"),
    Entry(name="AttachLogitProcessFunc", run=on_gpu(own(attach_logit_processing))),
    Entry(name="AttachAdditionalPrimFuncs"),
    Entry(name="AttachAllocEmbeddingTensorFunc", where="Lower"),
    Entry(name="AttachGPUSamplingFunc", run=on_gpu(own(attach_gpu_sampling))),
    Entry(name="AttachSpecDecodeAuxFuncs", run=on_gpu(own(attach_draft_functions))),
    Entry(name="AttachMemoryPlanAttr", run=on_gpu(own(attach_memory_plan))),
    Entry(name="AttachSequenceLengthPaddingFactor"),
    Entry(name="BindTarget", where="ScheduleKernel"),
)
