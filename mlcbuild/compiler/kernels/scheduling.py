"""How a backend schedules kernels: rules in order, of which the first that fits a kernel schedules it.

ScheduleKernel takes a `Scheduling` as its plug-in `backend`: `SCHEDULING` of `backends/<kind>/schedule.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from mlcbuild.compiler.kernels.shapes import ShapedRule, rule_of
from mlcbuild.errors import StageError

# The scheduled kernel, or None where the rule does not fit.
Rule = Callable[[tirx.PrimFunc, tvm.target.Target], tirx.PrimFunc | None]
# The kernel with further parameters, and these: global memory that the caller allocates for it.
WorkspaceLift = Callable[[tirx.PrimFunc], tuple[tirx.PrimFunc, Sequence[tirx.Var]]]


# What a scheduled kernel is written in besides TIR, in a word of the backend's own; "" for nothing.
Language = Callable[[tirx.PrimFunc], str]
TVM_RULES, OWN_RULES, WRITTEN, UNSCHEDULED = "tvm", "mlcbuild", "tir", "unscheduled"


def _tir_alone(_func: tirx.PrimFunc) -> str:
    return ""


def _no_workspace(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, Sequence[tirx.Var]]:
    return func, ()


@dataclass(frozen=True, kw_only=True)
class ChosenShape:
    """A shape that a measurement has chosen for a kernel: the word of its rule (`ShapedRule.word`) and the values."""

    rule: str
    shape: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """`rules` are for kernels that are optimized, `unoptimized_rules` for `opt = "O0"`. A kernel that was written as it
    is may have been by one of `rules`, which then writes it with another shape (`shapes.written_by`).

    `lift_workspace` makes parameters of the buffers that a scheduled kernel wants of its caller (`kernels.workspace`).
    `tvm_rules` are those of the rules that are TVM's own, and `language` tells of other languages than TIR.
    """

    rules: tuple[Rule, ...]
    unoptimized_rules: tuple[Rule, ...] = ()
    lift_workspace: WorkspaceLift = _no_workspace
    tvm_rules: tuple[Rule, ...] = ()
    language: Language = _tir_alone

    def source(self, scheduled: tirx.PrimFunc, rule: Rule | None) -> str:
        """Where a kernel comes from that a rule has scheduled, or none: the word of its language, else who scheduled
        it, else `WRITTEN` if it came scheduled."""
        if word := self.language(scheduled):
            return word
        if rule is not None:
            return TVM_RULES if rule in self.tvm_rules else OWN_RULES
        return WRITTEN if _came_scheduled(scheduled) else UNSCHEDULED


def apply_rules(
    func: tirx.PrimFunc,
    target: tvm.target.Target,
    rules: tuple[Rule, ...],
    chosen: ChosenShape | None = None,
) -> tirx.PrimFunc:
    """The kernel as the first rule that fits it schedules it; as it is, where none does or it came scheduled.

    It has the shape that was `chosen` for it, if that is of the same rule or of that which it was written by, and its
    default shape otherwise. Raises StageError for a rule that returns neither a kernel nor None.
    """
    return apply_first_rule(func, target, rules, chosen)[0]


def apply_first_rule(
    func: tirx.PrimFunc,
    target: tvm.target.Target,
    rules: tuple[Rule, ...],
    chosen: ChosenShape | None = None,
) -> tuple[tirx.PrimFunc, Rule | None]:
    """As `apply_rules`, with the rule that scheduled the kernel, if one did."""
    if _came_scheduled(func):
        writer = _writer(func, rules)
        if writer is None or chosen is None or writer.word != chosen.rule:
            return func, None
        return writer.with_shape(func, target, chosen.shape) or func, None
    for rule in rules:
        if chosen is not None and isinstance(rule, ShapedRule) and rule.word == chosen.rule:
            scheduled: Any = rule.with_shape(func, target, chosen.shape)
        else:
            scheduled = rule(func, target)
        if isinstance(scheduled, tirx.PrimFunc):
            return scheduled, rule
        if scheduled is not None:
            name = f"{rule.__module__}.{getattr(rule, '__qualname__', type(rule).__qualname__)}"
            raise StageError(f"the schedule rule {name} returned {type(scheduled).__name__}, neither a kernel nor None")
    return func, None


def shaped_rule_of(
    func: tirx.PrimFunc, target: tvm.target.Target, rules: tuple[Rule, ...]
) -> ShapedRule[Any, Any] | None:
    """The rule among whose shapes can be chosen for a kernel; None where the first rule that fits it, or the pass that
    made it, leaves no choice."""
    if _came_scheduled(func):
        return _writer(func, rules)
    for rule in rules:
        if rule(func, target) is not None:
            return rule if isinstance(rule, ShapedRule) else None
    return None


def _writer(func: tirx.PrimFunc, rules: tuple[Rule, ...]) -> ShapedRule[Any, Any] | None:
    """The rule that a kernel which came scheduled was written by."""
    name = rule_of(func)
    return next((rule for rule in rules if isinstance(rule, ShapedRule) and name and rule.name == name), None)


def _came_scheduled(func: tirx.PrimFunc) -> bool:
    return "tirx.is_scheduled" in func.attrs
