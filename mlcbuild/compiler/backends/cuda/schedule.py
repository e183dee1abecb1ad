"""The schedule rules for NVIDIA GPUs, in order."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import library
from mlcbuild.compiler.backends.cuda.kernels.attention import tune_paged_decode
from mlcbuild.compiler.backends.cuda.kernels.expert_product import schedule_expert_product
from mlcbuild.compiler.backends.cuda.kernels.gemv import schedule_packed_gemv
from mlcbuild.compiler.backends.cuda.kernels.matmul import schedule_matmul
from mlcbuild.compiler.backends.cuda.kernels.state_scan import schedule_state_scan
from mlcbuild.compiler.kernel_attributes import DEVICE_KERNELS
from mlcbuild.compiler.kernels.scheduling import Rule, Scheduling
from mlcbuild.compiler.kernels.workspace import lift_global_buffers

_TVM_RULES: tuple[Rule, ...] = (
    library.schedule_plain_matmul,
    library.schedule_gemv,
    library.schedule_reduction,
    library.schedule_general_reduction,
    library.schedule_fallback,
)


def language(func: tirx.PrimFunc) -> str:
    """`triton` for a kernel that starts some of Triton's, `cuda` for one with functions written in CUDA C++."""
    if DEVICE_KERNELS in func.attrs:
        return "triton"
    with_text = False

    def look(call: tvm.ir.Call) -> tvm.ir.Call:
        nonlocal with_text
        with_text = with_text or call.op.same_as(_CUDA_TEXT)
        return call

    tvm_ffi.structural_map(func.body, (tvm.ir.Call, look))
    return "cuda" if with_text else ""


_CUDA_TEXT = tvm.ir.Op.get("tirx.cuda.func_call")
SCHEDULING = Scheduling(
    rules=(
        schedule_state_scan,
        schedule_packed_gemv,
        schedule_matmul,
        schedule_expert_product,
        *_TVM_RULES,
        tune_paged_decode,  # of a kernel that was written as it is
    ),
    # Each loop must be bound to blocks or threads, at O0 too.
    unoptimized_rules=(
        schedule_state_scan,
        library.schedule_fallback,
    ),
    lift_workspace=lift_global_buffers,
    tvm_rules=_TVM_RULES,
    language=language,
)
