"""What is measured: prompts of some length are read, or sequences of some length go on."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`batch` sequences. In a prefill each reads `tokens` tokens after `context` others; in a decoding each has
    `context` tokens, and gets `tokens` more, one at a time."""

    phase: Phase
    batch: int
    tokens: int
    context: int

    @property
    def capacity(self) -> int:
        """The tokens that a sequence has at the end."""
        return self.context + self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Seconds of the rounds of a workload: of all tokens in a prefill, of a step in a decoding."""

    workload: Workload
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """The distance of the extremes, as a share of the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median

    @property
    def tokens_a_second(self) -> float:
        at_once = self.workload.tokens if self.workload.phase is Phase.PREFILL else 1
        return self.workload.batch * at_once / self.median


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTime:
    """What calls of a function with tensors of equal `shapes` took in one pass: seconds of all, each waited for.

    The function is a kernel of the library, or one of TVM's runtime. `bytes` are those of the tensors of a call; 0
    where it takes more than tensors, such as a cache.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    calls: int
    seconds: float
    bytes: int
