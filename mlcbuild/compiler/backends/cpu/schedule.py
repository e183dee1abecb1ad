"""The schedule rules for CPUs, in order. At O0 kernels stay as they are."""

from __future__ import annotations

from mlcbuild.compiler.backends.cpu.kernels.attention_shapes import tune_paged_prefill, tune_ragged_prefill
from mlcbuild.compiler.backends.cpu.kernels.byte_product import schedule_byte_product
from mlcbuild.compiler.backends.cpu.kernels.expert_product import schedule_expert_product
from mlcbuild.compiler.backends.cpu.kernels.fallback import schedule_fallback
from mlcbuild.compiler.backends.cpu.kernels.gemv import schedule_gemv
from mlcbuild.compiler.backends.cpu.kernels.matmul import schedule_matmul
from mlcbuild.compiler.backends.cpu.kernels.panels import schedule_panels
from mlcbuild.compiler.backends.cpu.kernels.rows import schedule_rows
from mlcbuild.compiler.backends.cpu.kernels.state_scan import schedule_state_scan
from mlcbuild.compiler.backends.cpu.kernels.zero_points import schedule_zero_points
from mlcbuild.compiler.kernels.scheduling import Scheduling

SCHEDULING = Scheduling(
    rules=(
        schedule_state_scan,
        schedule_gemv,
        schedule_panels,
        schedule_matmul,
        schedule_byte_product,
        schedule_zero_points,
        schedule_expert_product,
        schedule_rows,
        schedule_fallback,
        # Of kernels that were written as they are.
        tune_paged_prefill,
        tune_ragged_prefill,
    )
)
