"""The schedule rules for CPUs, in order."""

from __future__ import annotations

from mlcbuild.compiler.backends.cpu.kernels.fallback import schedule_fallback
from mlcbuild.compiler.backends.cpu.kernels.gemv import schedule_gemv
from mlcbuild.compiler.backends.cpu.kernels.matmul import schedule_matmul
from mlcbuild.compiler.backends.cpu.kernels.rows import schedule_rows
from mlcbuild.compiler.kernels.rules import Rule

CPU_RULES: tuple[Rule, ...] = (schedule_gemv, schedule_matmul, schedule_rows, schedule_fallback)
UNOPTIMIZED_CPU_RULES: tuple[Rule, ...] = ()  # At O0 kernels stay as they are.
