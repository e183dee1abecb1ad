"""What the attribute `opt` asks for, by MLC-LLM's names of levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization:
    """`schedules`: kernels are scheduled; `cuda_graph`: on a GPU, decoding is recorded once and replayed."""

    schedules: bool = True
    cuda_graph: bool = True


LEVELS: Mapping[str, Optimization] = {
    "O0": Optimization(schedules=False, cuda_graph=False),
    "O1": Optimization(cuda_graph=False),
    "O2": Optimization(),
    "O3": Optimization(),
}
