"""What NVIDIA GPUs have of their own in Phase3."""

from __future__ import annotations

import tvm

from mlcbuild.compiler.backends.cuda.passes.fuse_gated_product import fuse_gated_product
from mlcbuild.compiler.backends.cuda.passes.prefetch_weights import prefetch_weights
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext
from mlcbuild.compiler.phases.placed import PlacedPass


def _fuse_gated_product(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    return fuse_gated_product(module, context.target)


def _prefetch_weights(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    return prefetch_weights(module, context.target)


PASSES: Passes = {
    "FuseGatedProduct": PlacedPass(run=_fuse_gated_product, after="FuseDequantizeMatmulEwise"),
    "PrefetchWeights": PlacedPass(run=_prefetch_weights, after="CleanUpTIRAttrs"),
}
