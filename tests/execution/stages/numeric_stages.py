"""A stage that wants numpy, and may not have torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def total(*, out: Path, numbers: list[float]) -> None:
    out.write_text(str(float(np.sum(numbers))))


def load_torch(*, out: Path) -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        out.write_text(str(error))
