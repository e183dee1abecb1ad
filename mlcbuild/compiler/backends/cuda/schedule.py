"""The schedule rules for NVIDIA GPUs, in order."""

from __future__ import annotations

from mlcbuild.compiler.backends.cuda.kernels import library
from mlcbuild.compiler.backends.cuda.kernels.expert_product import schedule_expert_product
from mlcbuild.compiler.backends.cuda.kernels.gemv import schedule_packed_gemv
from mlcbuild.compiler.backends.cuda.kernels.matmul import schedule_matmul
from mlcbuild.compiler.backends.cuda.kernels.state_scan import schedule_state_scan
from mlcbuild.compiler.kernels.scheduling import Scheduling
from mlcbuild.compiler.kernels.workspace import lift_global_buffers

SCHEDULING = Scheduling(
    rules=(
        schedule_state_scan,
        schedule_packed_gemv,
        schedule_matmul,
        schedule_expert_product,
        library.schedule_plain_matmul,
        library.schedule_gemv,
        library.schedule_reduction,
        library.schedule_general_reduction,
        library.schedule_fallback,
    ),
    # Each loop must be bound to blocks or threads, at O0 too.
    unoptimized_rules=(
        schedule_state_scan,
        library.schedule_fallback,
    ),
    lift_workspace=lift_global_buffers,
)
