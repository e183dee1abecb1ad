"""Phase4: kernels are scheduled, each in an action of its own."""

from __future__ import annotations

from mlcbuild.compiler.phases.pipeline import Entry

PHASE4: tuple[Entry, ...] = (
    Entry(name="LowBatchGemvSpecialize", where="ScheduleKernel"),
    Entry(name="ApplyDefaultSchedule", where="ScheduleKernel"),
)
