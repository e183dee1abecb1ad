"""A stage that wants numpy, and may not have torch."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np


def total(*, out: Path, numbers: list[float]) -> None:
    out.write_text(str(float(np.sum(numbers))))


def count_page_faults(*, out: Path, rounds: int) -> None:
    """How many pages the system has to clear a round, in which four arrays of 64 pages are made and dropped."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        arrays = [np.ones(1 << 16, np.float32) for _ in range(4)]
        del arrays
    out.write_text(str((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // rounds))


def load_torch(*, out: Path) -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        out.write_text(str(error))
