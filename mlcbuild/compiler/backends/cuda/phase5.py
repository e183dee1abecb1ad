"""What NVIDIA GPUs have of their own in Phase5: decoding is recorded as CUDA graphs."""

from __future__ import annotations

from tvm.relax import transform

from mlcbuild.compiler.backends.cuda.passes.attach_cuda_graph import attach_cuda_graph_alloc_init
from mlcbuild.compiler.backends.cuda.passes.read_parameters_late import read_parameters_late
from mlcbuild.compiler.phases.pipeline import Passes, module_pass, tvm_pass
from mlcbuild.compiler.phases.placed import PlacedPass

PASSES: Passes = {
    "RewriteCUDAGraph": tvm_pass(transform.RewriteCUDAGraph),
    "AttachCUDAGraphAllocInitFunc": module_pass(attach_cuda_graph_alloc_init),
    # What lies between two kernels goes into each graph that is cut out.
    "ReadParametersLate": PlacedPass(run=module_pass(read_parameters_late), after="AttachCUDAGraphAllocInitFunc"),
}
