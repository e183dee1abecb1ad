"""The ordered lists of schedule rules: the first that fits a kernel schedules it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm
from tvm import tirx

from mlcbuild.compiler.kernels.cpu.fallback import schedule_fallback
from mlcbuild.compiler.kernels.cpu.gemv import schedule_gemv
from mlcbuild.compiler.kernels.cpu.matmul import schedule_matmul
from mlcbuild.compiler.kernels.cpu.rows import schedule_rows
from mlcbuild.compiler.kernels.gpu import library
from mlcbuild.compiler.kernels.gpu.gemv import schedule_packed_gemv
from mlcbuild.compiler.kernels.gpu.matmul import schedule_matmul as schedule_tensor_core_matmul

Rule = Callable[[tirx.PrimFunc, tvm.target.Target], tirx.PrimFunc | None]

CPU_RULES: tuple[Rule, ...] = (schedule_gemv, schedule_matmul, schedule_rows, schedule_fallback)
GPU_RULES: tuple[Rule, ...] = (
    schedule_packed_gemv,
    schedule_tensor_core_matmul,
    library.schedule_plain_matmul,
    library.schedule_gemv,
    library.schedule_reduction,
    library.schedule_general_reduction,
    library.schedule_fallback,
)
# At O0 kernels stay as they are. On a GPU somebody has to say which thread does what.
UNOPTIMIZED: Mapping[str, tuple[Rule, ...]] = {"llvm": (), "cuda": (library.schedule_fallback,)}
OPTIMIZED: Mapping[str, tuple[Rule, ...]] = {"llvm": CPU_RULES, "cuda": GPU_RULES}


def apply_rules(func: tirx.PrimFunc, target: tvm.target.Target, rules: tuple[Rule, ...]) -> tirx.PrimFunc:
    """The kernel as the first rule that fits it schedules it; as it is, where none does or it came scheduled."""
    if "tirx.is_scheduled" in func.attrs:
        return func
    for rule in rules:
        scheduled = rule(func, target)
        if scheduled is not None:
            return scheduled
    return func
