"""How a backend schedules kernels: rules in order, of which the first that fits a kernel schedules it.

ScheduleKernel takes a `Scheduling` as its plug-in `backend`: `SCHEDULING` of `backends/<kind>/schedule.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm
from tvm import tirx

from mlcbuild.errors import StageError

# The scheduled kernel, or None where the rule does not fit.
Rule = Callable[[tirx.PrimFunc, tvm.target.Target], tirx.PrimFunc | None]
# The kernel with further parameters, and these: global memory that the caller allocates for it.
WorkspaceLift = Callable[[tirx.PrimFunc], tuple[tirx.PrimFunc, Sequence[tirx.Var]]]


def _no_workspace(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, Sequence[tirx.Var]]:
    return func, ()


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """`rules` are for kernels that are optimized, `unoptimized_rules` for `opt = "O0"`.

    `lift_workspace` makes parameters of the buffers that a scheduled kernel wants of its caller (`kernels.workspace`).
    """

    rules: tuple[Rule, ...]
    unoptimized_rules: tuple[Rule, ...] = ()
    lift_workspace: WorkspaceLift = _no_workspace


def apply_rules(func: tirx.PrimFunc, target: tvm.target.Target, rules: tuple[Rule, ...]) -> tirx.PrimFunc:
    """The kernel as the first rule that fits it schedules it; as it is, where none does or it came scheduled.

    Raises StageError for a rule that returns neither a kernel nor None.
    """
    if "tirx.is_scheduled" in func.attrs:
        return func
    for rule in rules:
        scheduled = rule(func, target)
        if isinstance(scheduled, tirx.PrimFunc):
            return scheduled
        if scheduled is not None:
            name = f"{rule.__module__}.{rule.__qualname__}"
            raise StageError(f"the schedule rule {name} returned {type(scheduled).__name__}, neither a kernel nor None")
    return func
