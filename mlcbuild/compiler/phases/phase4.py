"""Phase4: kernels are scheduled, each in an action of its own and by the rules of its backend, so no pass runs here."""

from __future__ import annotations

from mlcbuild.compiler.phases.entry import Entry, PassOrigin

PHASE4: tuple[Entry, ...] = (
    Entry(
        name="LowBatchGemvSpecialize",
        origin=PassOrigin.MLC_LLM,
        not_needed="ScheduleKernel does it: a product of any number of vectors gets code of its own for few of them, "
        "chosen when it runs.",
    ),
    Entry(
        name="ApplyDefaultSchedule",
        origin=PassOrigin.MLC_LLM,
        not_needed="ScheduleKernel applies the schedule rules of its backend, to one kernel at a time.",
    ),
)
