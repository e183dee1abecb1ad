"""The schedule rules for NVIDIA GPUs, in order."""

from __future__ import annotations

from mlcbuild.compiler.backends.cuda.kernels import library
from mlcbuild.compiler.backends.cuda.kernels.gemv import schedule_packed_gemv
from mlcbuild.compiler.backends.cuda.kernels.matmul import schedule_matmul
from mlcbuild.compiler.kernels.rules import Rule

GPU_RULES: tuple[Rule, ...] = (
    schedule_packed_gemv,
    schedule_matmul,
    library.schedule_plain_matmul,
    library.schedule_gemv,
    library.schedule_reduction,
    library.schedule_general_reduction,
    library.schedule_fallback,
)
# Somebody has to say which thread does what, at O0 too.
UNOPTIMIZED_GPU_RULES: tuple[Rule, ...] = (library.schedule_fallback,)
