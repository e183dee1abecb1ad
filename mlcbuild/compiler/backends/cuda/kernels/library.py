"""TVM's own schedules for GPUs, as rules: what no rule of ours is for."""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.s_tir import dlight


def schedule_reduction(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """None unless `func` holds one reduction, with at most element-wise blocks around it."""
    return _apply(dlight.gpu.Reduction(), func, target)


def schedule_general_reduction(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """None unless all blocks of `func` share their outer axes, and those that reduce do it along the last ones."""
    return _apply(dlight.gpu.GeneralReduction(), func, target)


def schedule_plain_matmul(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """None unless `func` is a matrix product. Tensor cores are not used: the rule loads their instructions, which takes
    seconds, for any architecture that has them, so it is told of none."""
    plain = {name: value for name, value in target.export().items() if name not in ("arch", "tag")}
    return _apply(dlight.gpu.Matmul(), func, tvm.target.Target(plain | {"arch": "sm_50"}))


def schedule_gemv(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """None unless `func` is a matrix times one vector."""
    return _apply(dlight.gpu.GEMV(), func, target)


def schedule_fallback(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """Inlines what can be inlined, and spreads the elements of each block over threads. None for a kernel that is not
    made of blocks."""
    return _apply(dlight.gpu.Fallback(), func, target)


def _apply(rule: dlight.ScheduleRule, func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    try:
        schedule = rule.apply(func, target, False)
    except AssertionError:
        return None  # so TVM's analysis tells of a place that is read from a buffer, such as the row of an expert
    return None if schedule is None else schedule.mod["main"]
