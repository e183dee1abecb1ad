"""Phase5: memory is planned, and the graph becomes what the virtual machine runs. Lower runs it.

What needs all layers, the sizes of a library or the signatures of scheduled kernels comes first: no earlier stage knows
these.
"""

from __future__ import annotations

from mlcbuild.compiler.phases.entry import Entry, PassOrigin

PHASE5: tuple[Entry, ...] = (
    Entry(name="SetActiveVocabSize", origin=PassOrigin.MLCBUILD),
    Entry(name="SetContextWindow", origin=PassOrigin.MLCBUILD),
    Entry(name="RepeatLayers", origin=PassOrigin.MLCBUILD),
    Entry(name="InlinePrivateFunctions", origin=PassOrigin.MLCBUILD),
    Entry(name="Normalize", origin=PassOrigin.TVM),
    Entry(name="CanonicalizeBindings", origin=PassOrigin.TVM),
    Entry(name="AddWorkspaces", origin=PassOrigin.MLCBUILD),
    # MLC-LLM has these two in Phase0. They depend on sizes that a library may override.
    Entry(name="AttachAllocEmbeddingTensorFunc", origin=PassOrigin.MLC_LLM),
    Entry(name="AttachVariableBounds", origin=PassOrigin.MLC_LLM),
    Entry(
        name="LiftTIRGlobalBufferAlloc",
        origin=PassOrigin.MLC_LLM,
        not_needed="ScheduleKernel lifts a kernel's buffers and tells of them in its signature. AddWorkspaces has its "
        "callers allocate them.",
    ),
    Entry(
        name="ForceNarrowIndexToInt32",
        origin=PassOrigin.MLC_LLM,
        not_needed="Where sizes are known, TVM's code generation narrows indices itself. Where they are not, 32 bits "
        "can be too few: a cache may hold more than 2^31 numbers.",
    ),
    Entry(
        name="ScatterTupleGetItem",
        origin=PassOrigin.MLC_LLM,
        not_needed="It moves the reading of each parameter to where it is used. RepeatLayers reads all of them first, "
        "for the sake of recorded CUDA graphs.",
    ),
    Entry(
        name="PipelineParallelRewrite",
        origin=PassOrigin.MLC_LLM,
        not_needed="A library is one pipeline stage: no model is cut into several.",
    ),
    Entry(name="ToNonDataflow", origin=PassOrigin.MLC_LLM),
    Entry(name="RemovePurityChecking", origin=PassOrigin.MLC_LLM),
    Entry(name="CallTIRRewrite", origin=PassOrigin.MLC_LLM),
    Entry(
        name="IPCAllReduceRewrite",
        origin=PassOrigin.MLC_LLM,
        not_needed="It makes an all-reduce faster, and a library of one shard has none.",
    ),
    Entry(name="StaticPlanBlockMemory", origin=PassOrigin.MLC_LLM),
    Entry(name="AttachMetadataWithMemoryUsage", origin=PassOrigin.MLC_LLM),
    Entry(name="RewriteCUDAGraph", origin=PassOrigin.MLC_LLM, backend=True),
    Entry(name="AttachCUDAGraphAllocInitFunc", origin=PassOrigin.MLC_LLM, backend=True),
    Entry(
        name="LowerGPUIPCAllocStorage",
        origin=PassOrigin.MLC_LLM,
        not_needed="It allocates what several GPUs share for an all-reduce, and a library of one shard has none.",
    ),
    Entry(name="LowerAllocTensor", origin=PassOrigin.MLC_LLM),
    Entry(name="KillAfterLastUse", origin=PassOrigin.MLC_LLM),
    Entry(name="LowerRuntimeBuiltin", origin=PassOrigin.MLC_LLM),
    Entry(name="VMShapeLower", origin=PassOrigin.MLC_LLM),
    Entry(name="AttachGlobalSymbol", origin=PassOrigin.MLC_LLM),
    Entry(
        name="AttachExternModules",
        origin=PassOrigin.MLC_LLM,
        not_needed="No pass makes a compiled module: every kernel is compiled by actions of its own.",
    ),
)
