"""Phase5: memory is planned, and the graph becomes what the virtual machine runs. Lower runs it.

What needs all layers, the sizes of a library or the signatures of scheduled kernels comes first: no earlier stage knows
these.
"""

from __future__ import annotations

from mlcbuild.compiler.phases.entry import Entry, Origin

PHASE5: tuple[Entry, ...] = (
    Entry(name="RepeatLayers", origin=Origin.MLCBUILD),
    Entry(name="InlinePrivateFunctions", origin=Origin.MLCBUILD),
    Entry(name="Normalize", origin=Origin.TVM),
    Entry(name="CanonicalizeBindings", origin=Origin.TVM),
    Entry(name="AddWorkspaces", origin=Origin.MLCBUILD),
    # MLC-LLM has these two in Phase0. They depend on sizes that a library may override.
    Entry(name="AttachAllocEmbeddingTensorFunc", origin=Origin.MLC_LLM),
    Entry(name="AttachVariableBounds", origin=Origin.MLC_LLM),
    Entry(
        name="LiftTIRGlobalBufferAlloc",
        origin=Origin.MLC_LLM,
        not_needed="ScheduleKernel lifts a kernel's buffers and tells of them in its signature. AddWorkspaces has its "
        "callers allocate them.",
    ),
    Entry(
        name="ForceNarrowIndexToInt32",
        origin=Origin.MLC_LLM,
        not_needed="Where sizes are known, TVM's code generation narrows indices itself. Where they are not, 32 bits "
        "can be too few: a cache may hold more than 2^31 numbers.",
    ),
    Entry(
        name="ScatterTupleGetItem",
        origin=Origin.MLC_LLM,
        not_needed="It moves the reading of each parameter to where it is used. RepeatLayers reads all of them first, "
        "for the sake of recorded CUDA graphs.",
    ),
    Entry(
        name="PipelineParallelRewrite",
        origin=Origin.MLC_LLM,
        not_needed="A library is one pipeline stage: no model is cut into several.",
    ),
    Entry(name="ToNonDataflow", origin=Origin.MLC_LLM),
    Entry(name="RemovePurityChecking", origin=Origin.MLC_LLM),
    Entry(name="CallTIRRewrite", origin=Origin.MLC_LLM),
    Entry(
        name="IPCAllReduceRewrite",
        origin=Origin.MLC_LLM,
        not_needed="It makes an all-reduce faster, and a library of one shard has none.",
    ),
    Entry(name="StaticPlanBlockMemory", origin=Origin.MLC_LLM),
    Entry(name="AttachMetadataWithMemoryUsage", origin=Origin.MLC_LLM),
    Entry(name="RewriteCUDAGraph", origin=Origin.MLC_LLM, backend=True),
    Entry(name="AttachCUDAGraphAllocInitFunc", origin=Origin.MLC_LLM, backend=True),
    Entry(
        name="LowerGPUIPCAllocStorage",
        origin=Origin.MLC_LLM,
        not_needed="It allocates what several GPUs share for an all-reduce, and a library of one shard has none.",
    ),
    Entry(name="LowerAllocTensor", origin=Origin.MLC_LLM),
    Entry(name="KillAfterLastUse", origin=Origin.MLC_LLM),
    Entry(name="LowerRuntimeBuiltin", origin=Origin.MLC_LLM),
    Entry(name="VMShapeLower", origin=Origin.MLC_LLM),
    Entry(name="AttachGlobalSymbol", origin=Origin.MLC_LLM),
    Entry(
        name="AttachExternModules",
        origin=Origin.MLC_LLM,
        not_needed="No pass makes a compiled module: every kernel is compiled by actions of its own.",
    ),
)
