"""What CPUs have of their own in Phase0: kernels of the cache, and of what an engine calls there."""

from __future__ import annotations

from functools import partial

import tvm

from mlcbuild.compiler.backends.cpu.kernels import logits
from mlcbuild.compiler.backends.cpu.kernels.kv_cache import with_vector_kernels
from mlcbuild.compiler.backends.cpu.kernels.latent_attention import latent_kernels
from mlcbuild.compiler.backends.cpu.kernels.masked_attention import masked_attention
from mlcbuild.compiler.models.caches.kv_cache import KVCacheGeometry
from mlcbuild.compiler.passes.attach_draft_functions import attach_draft_functions
from mlcbuild.compiler.passes.attach_logit_processing import attach_logit_processing
from mlcbuild.compiler.passes.dispatch_kv_cache_creation import LAYER_WINDOW, dispatch_kv_cache_creation
from mlcbuild.compiler.passes.dispatch_masked_attention import dispatch_masked_attention
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext, module_pass, of_logits


def _dispatch_kv_cache_creation(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    def exchanged(created: tvm.IRModule, geometry: KVCacheGeometry) -> tvm.IRModule:
        return with_vector_kernels(
            created,
            target=context.target,
            theta=geometry.rope_theta,
            scale=geometry.rope_scale,
            rope_scaling=dict(geometry.rope_scaling),
            layer_window=LAYER_WINDOW,
            window=context.window,
            rules=geometry.rules,
        )

    return dispatch_kv_cache_creation(
        module, context.target, window=context.window, exchange=exchanged, latent=latent_kernels
    )


def _logit_processing(module: tvm.IRModule) -> tvm.IRModule:
    return attach_logit_processing(module, add_bias=logits.add_bias(), penalize=logits.penalize(), mask=logits.mask())


def _draft_functions(module: tvm.IRModule) -> tvm.IRModule:
    return attach_draft_functions(module, scatter_rows=logits.scatter_rows, gather_rows=logits.gather_rows)


PASSES: Passes = {
    "DispatchKVCacheCreation": _dispatch_kv_cache_creation,
    "DispatchMaskedAttention": module_pass(partial(dispatch_masked_attention, make=masked_attention)),
    "AttachLogitProcessFunc": of_logits(module_pass(_logit_processing)),
    "AttachSpecDecodeAuxFuncs": of_logits(module_pass(_draft_functions)),
}
