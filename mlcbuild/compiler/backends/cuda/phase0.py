"""What NVIDIA GPUs have of their own in Phase0: kernels of the cache and softmax, and what an engine calls there."""

from __future__ import annotations

from functools import partial

import tvm

from mlcbuild.compiler.backends.cuda.kernels import logits
from mlcbuild.compiler.backends.cuda.kernels.kv_cache import with_own_kernels
from mlcbuild.compiler.backends.cuda.kernels.latent_attention import latent_kernels
from mlcbuild.compiler.backends.cuda.kernels.masked_attention import masked_attention
from mlcbuild.compiler.backends.cuda.passes.attach_cuda_graph import attach_cuda_graph_hints, attach_memory_plan
from mlcbuild.compiler.backends.cuda.passes.attach_gpu_sampling import attach_gpu_sampling
from mlcbuild.compiler.backends.cuda.passes.attach_softmax_in_chunks import attach_softmax_in_chunks
from mlcbuild.compiler.models.caches.kv_cache import KVCacheGeometry
from mlcbuild.compiler.passes.attach_draft_functions import attach_draft_functions
from mlcbuild.compiler.passes.attach_logit_processing import attach_logit_processing
from mlcbuild.compiler.passes.dispatch_kv_cache_creation import dispatch_kv_cache_creation
from mlcbuild.compiler.passes.dispatch_masked_attention import dispatch_masked_attention
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext, module_pass, of_logits


def _dispatch_kv_cache_creation(
    module: tvm.IRModule, context: PhaseContext, *, with_triton: bool = False
) -> tvm.IRModule:
    def exchanged(created: tvm.IRModule, geometry: KVCacheGeometry) -> tvm.IRModule:
        return with_own_kernels(
            created,
            rope_scaling=dict(geometry.rope_scaling),
            target=context.target,
            window=context.window,
            rules=geometry.rules,
            with_triton=with_triton,
        )

    return dispatch_kv_cache_creation(
        module,
        context.target,
        window=context.window,
        exchange=exchanged,
        latent=lambda geometry: latent_kernels(geometry, context.target),
    )


def dispatch_kv_cache_creation_with_triton(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    """The pass for platforms that take kernels written in Triton."""
    return _dispatch_kv_cache_creation(module, context, with_triton=True)


def _softmax(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    return attach_softmax_in_chunks(module, vocab_size=context.metadata["vocab_size"])


def _logit_processing(module: tvm.IRModule) -> tvm.IRModule:
    return attach_logit_processing(module, add_bias=logits.add_bias(), penalize=logits.penalize(), mask=logits.mask())


def _draft_functions(module: tvm.IRModule) -> tvm.IRModule:
    return attach_draft_functions(module, scatter_rows=logits.scatter_rows, gather_rows=logits.gather_rows)


PASSES: Passes = {
    "DispatchKVCacheCreation": _dispatch_kv_cache_creation,
    "DispatchMaskedAttention": module_pass(partial(dispatch_masked_attention, make=masked_attention)),
    "AttachSoftmaxWithTemperature": of_logits(_softmax),
    "AttachCUDAGraphSymbolicCaptureHints": module_pass(attach_cuda_graph_hints),
    "AttachLogitProcessFunc": of_logits(module_pass(_logit_processing)),
    "AttachGPUSamplingFunc": of_logits(module_pass(attach_gpu_sampling)),
    "AttachSpecDecodeAuxFuncs": of_logits(module_pass(_draft_functions)),
    "AttachMemoryPlanAttr": module_pass(attach_memory_plan),
}
