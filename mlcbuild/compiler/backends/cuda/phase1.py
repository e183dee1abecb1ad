"""What NVIDIA GPUs have of their own in Phase1."""

from __future__ import annotations

import tvm

from mlcbuild.compiler.backends.cuda.passes.dispatch_triton_kernel import dispatch_triton_kernels
from mlcbuild.compiler.backends.cuda.passes.fuse_add_rms_norm import fuse_add_rms_norm
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext, module_pass


def dispatch_triton_kernel(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
    """The kernels that a workspace declares."""
    return dispatch_triton_kernels(module, context.triton_kernels) if context.triton_kernels else module


PASSES: Passes = {
    "DispatchTritonKernel": dispatch_triton_kernel,
    "FuseAddRMSNorm": module_pass(fuse_add_rms_norm),
}
