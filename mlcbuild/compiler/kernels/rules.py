"""The ordered list of schedule rules: the first that fits a kernel schedules it."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import tirx

from mlcbuild.compiler.kernels.cpu.fallback import schedule_fallback
from mlcbuild.compiler.kernels.cpu.gemv import schedule_gemv
from mlcbuild.compiler.kernels.cpu.matmul import schedule_matmul
from mlcbuild.compiler.kernels.cpu.rows import schedule_rows

Rule = Callable[[tirx.PrimFunc, tvm.target.Target], tirx.PrimFunc | None]

CPU_RULES: tuple[Rule, ...] = (schedule_gemv, schedule_matmul, schedule_rows, schedule_fallback)


def apply_rules(func: tirx.PrimFunc, target: tvm.target.Target, rules: tuple[Rule, ...]) -> tirx.PrimFunc:
    """The kernel as the first rule that fits it schedules it; as it is, where none does or it came scheduled."""
    if "tirx.is_scheduled" in func.attrs:
        return func
    for rule in rules:
        scheduled = rule(func, target)
        if scheduled is not None:
            return scheduled
    return func
