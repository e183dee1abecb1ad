"""Ratios of two series that were measured in turn."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def of_medians(one: Sequence[float], other: Sequence[float]) -> float:
    """The median of one as a multiple of the other's."""
    return round(statistics.median(one) / statistics.median(other), 3)
