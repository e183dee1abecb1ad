"""Fields of Mamba 2's layers that several configurations share."""

from __future__ import annotations

import math

from mlcbuild.compiler.models.config import ConfigReader


def read_step_limits(reader: ConfigReader) -> tuple[float, float | None]:
    """The least and the greatest step, by `time_step_limit`; None where the latter has no bound. Raises StageError for
    another list."""
    found = reader.value("time_step_limit")
    if found is None:
        return 0.0, None
    # JSON has no word for an infinite number: files have Python's `Infinity`, or the object that transformers 5 writes.
    if isinstance(found, list):
        found = [math.inf if each == {"__float__": "Infinity"} else each for each in found]
    if not isinstance(found, list) or [type(each) in (int, float) for each in found] != [True, True]:
        raise reader.fail("time_step_limit", "has to be a list of two numbers, the least and the greatest step")
    least, most = float(found[0]), float(found[1])
    if not 0 <= least <= most:
        raise reader.fail(
            "time_step_limit", f"is {found}; steps are not negative, and the second number is the greater"
        )
    return least, None if math.isinf(most) else most
