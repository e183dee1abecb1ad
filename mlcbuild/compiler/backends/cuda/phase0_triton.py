"""NVIDIA GPUs' part of Phase0 for platforms that take kernels written in Triton."""

from __future__ import annotations

from mlcbuild.compiler.backends.cuda import phase0
from mlcbuild.compiler.phases.pipeline import Passes

PASSES: Passes = {**phase0.PASSES, "DispatchKVCacheCreation": phase0.dispatch_kv_cache_creation_with_triton}
