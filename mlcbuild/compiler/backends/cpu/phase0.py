"""What CPUs have of their own in Phase0."""

from __future__ import annotations

import tvm

from mlcbuild.compiler.backends.cpu.kernels.kv_cache import with_vector_kernels
from mlcbuild.compiler.models.kv_cache import KVCacheGeometry
from mlcbuild.compiler.passes.dispatch_kv_cache_creation import LAYER_WINDOW, dispatch_kv_cache_creation
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext


def _dispatch_kv_cache_creation(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    def exchanged(created: tvm.IRModule, geometry: KVCacheGeometry) -> tvm.IRModule:
        return with_vector_kernels(
            created,
            theta=geometry.rope_theta,
            scale=geometry.rope_scale,
            rope_scaling=dict(geometry.rope_scaling),
            layer_window=LAYER_WINDOW,
            window=context.window,
        )

    return dispatch_kv_cache_creation(module, context.target, window=context.window, exchange=exchanged)


PASSES: Passes = {"DispatchKVCacheCreation": _dispatch_kv_cache_creation}
