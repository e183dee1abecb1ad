"""Records for tests."""

from __future__ import annotations

from typing import Any

from mlcbuild.tuning.record import Outcome, Record

PLATFORM = "llvm-x86-64-v3-0123456789ab"


def record(**changed: Any) -> Record:
    """A measurement of a kernel, with these fields instead of its own."""
    values: dict[str, Any] = {
        "kernel": f"kernel_{0:032x}",
        "rule": "cpu.gemv:2",
        "shape": (("chains", 1), ("rows", 2)),
        "sizes": (),
        "platform": PLATFORM,
        "device": "a processor",
        "driver": "",
        "clocks": "3000 MHz",
        "threads": 2,
        "tools": "tvm 0.27",
        "outcome": Outcome.MEASURED,
        "seconds": 0.5,
        "spread": 0.01,
        "untuned_seconds": 1.0,
        "calls": 10,
    }
    changed.setdefault("outcome", Outcome.MEASURED)
    if changed["outcome"] is not Outcome.MEASURED:
        values |= {"seconds": 0.0, "untuned_seconds": 0.0, "spread": 0.0, "calls": 0}
    return Record(**{**values, **changed})
