"""NVIDIA GPUs' part of Phase1 for platforms that take kernels written in Triton."""

from __future__ import annotations

import tvm

from mlcbuild.compiler.backends.cuda import phase1
from mlcbuild.compiler.backends.cuda.passes.dispatch_triton_products import dispatch_triton_products
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext


def _dispatch_triton_kernels(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    """A workspace's kernels come first."""
    return dispatch_triton_products(phase1.dispatch_triton_kernel(module, context), context.target)


PASSES: Passes = {**phase1.PASSES, "DispatchTritonKernel": _dispatch_triton_kernels}
