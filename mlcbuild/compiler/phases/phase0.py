"""Phase0: what the model does not say itself is attached: its cache, softmax and sampling."""

from __future__ import annotations

from mlcbuild.compiler.phases.entry import Entry, PassOrigin

PHASE0: tuple[Entry, ...] = (
    Entry(name="DispatchKVCacheCreation", origin=PassOrigin.MLC_LLM, backend=True),
    Entry(name="DispatchMaskedAttention", origin=PassOrigin.MLCBUILD, backend=True),
    Entry(name="AttachSoftmaxWithTemperature", origin=PassOrigin.MLC_LLM, backend=True),
    Entry(name="AttachCUDAGraphSymbolicCaptureHints", origin=PassOrigin.MLC_LLM, backend=True),
    Entry(
        name="AttachPipelineParallelStages",
        origin=PassOrigin.MLC_LLM,
        not_needed="A library is one pipeline stage: no model is cut into several.",
    ),
    Entry(name="AttachLogitProcessFunc", origin=PassOrigin.MLC_LLM, backend=True),
    Entry(
        name="AttachAdditionalPrimFuncs",
        origin=PassOrigin.MLC_LLM,
        not_needed="It adds the functions that cut weights into shards, and a library has one shard.",
    ),
    Entry(name="AttachGPUSamplingFunc", origin=PassOrigin.MLC_LLM, backend=True),
    Entry(name="AttachSpecDecodeAuxFuncs", origin=PassOrigin.MLC_LLM, backend=True),
    Entry(name="AttachMemoryPlanAttr", origin=PassOrigin.MLC_LLM, backend=True),
    Entry(
        name="AttachSequenceLengthPaddingFactor",
        origin=PassOrigin.MLC_LLM,
        not_needed="It pads prompts for CUTLASS kernels of sm_100a. No kernel here comes from CUTLASS.",
    ),
    Entry(
        name="BindTarget",
        origin=PassOrigin.MLC_LLM,
        not_needed="Kernels name no target, so that libraries can share them. ScheduleKernel and CompileKernel "
        "are given the target beside it.",
    ),
)
