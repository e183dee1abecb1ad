"""Schedule rules in order: the first that fits a kernel schedules it. Each backend's `kernels.rules` lists its own."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import tirx

Rule = Callable[[tirx.PrimFunc, tvm.target.Target], tirx.PrimFunc | None]


def apply_rules(func: tirx.PrimFunc, target: tvm.target.Target, rules: tuple[Rule, ...]) -> tirx.PrimFunc:
    """The kernel as the first rule that fits it schedules it; as it is, where none does or it came scheduled."""
    if "tirx.is_scheduled" in func.attrs:
        return func
    for rule in rules:
        scheduled = rule(func, target)
        if scheduled is not None:
            return scheduled
    return func
