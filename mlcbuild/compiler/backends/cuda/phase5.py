"""What NVIDIA GPUs have of their own in Phase5: decoding is recorded as CUDA graphs."""

from __future__ import annotations

from tvm.relax import transform

from mlcbuild.compiler.backends.cuda.passes.attach_cuda_graph import attach_cuda_graph_alloc_init
from mlcbuild.compiler.phases.pipeline import Passes, module_pass, tvm_pass

PASSES: Passes = {
    "RewriteCUDAGraph": tvm_pass(transform.RewriteCUDAGraph),
    "AttachCUDAGraphAllocInitFunc": module_pass(attach_cuda_graph_alloc_init),
}
