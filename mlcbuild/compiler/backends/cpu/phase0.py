"""What CPUs have of their own in Phase0."""

from __future__ import annotations

import tvm

from mlcbuild.compiler.backends.cpu.kernels.kv_cache import with_vector_kernels
from mlcbuild.compiler.models.kv_cache import KVCacheGeometry
from mlcbuild.compiler.passes.dispatch_kv_cache_creation import WINDOW, dispatch_kv_cache_creation
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext


def _dispatch_kv_cache_creation(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    return dispatch_kv_cache_creation(module, context.target, exchange=_exchanged)


def _exchanged(module: tvm.IRModule, geometry: KVCacheGeometry) -> tvm.IRModule:
    return with_vector_kernels(
        module,
        theta=geometry.rope_theta,
        scale=geometry.rope_scale,
        rope_scaling=dict(geometry.rope_scaling),
        window=WINDOW,
    )


PASSES: Passes = {"DispatchKVCacheCreation": _dispatch_kv_cache_creation}
