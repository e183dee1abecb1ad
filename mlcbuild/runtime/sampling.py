"""Choosing the next token from logits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcbuild.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen: at temperature 0 the likeliest (the first of equals), else at random by
    `seed`."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 100:
            raise UsageError(f"the temperature is {self.temperature}; it has to be from 0 (greedy) to 100")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p is {self.top_p}; it has to be above 0 and at most 1")
        if self.seed < 0:
            raise UsageError(f"the seed is {self.seed}; it cannot be negative")


@dataclass
class Sampler:
    """A sequence of choices; the same seed and logits give the same tokens.

    Where `vocabulary` is given, only the first so many tokens are chosen: the others are padding.
    """

    sampling: Sampling
    vocabulary: int | None = None
    _random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._random = np.random.Generator(np.random.PCG64(self.sampling.seed))

    def number(self) -> float:
        """The next of the seed's numbers in [0, 1)."""
        return float(self._random.random())

    def choose(self, logits: npt.NDArray[Any]) -> int:
        """A token for logits (vocabulary,)."""
        logits = logits[: self.vocabulary]
        if self.sampling.temperature == 0:
            return int(np.argmax(logits))
        scaled = logits.astype(np.float64) / self.sampling.temperature
        weights = np.exp(scaled - scaled.max())
        order = np.argsort(-weights, kind="stable")
        cumulative = np.cumsum(weights[order])
        # The smallest set of the likeliest tokens whose probability reaches top_p.
        count = int(np.searchsorted(cumulative, self.sampling.top_p * cumulative[-1])) + 1
        count = min(count, len(order))
        point = self.number() * cumulative[count - 1]
        return int(order[min(int(np.searchsorted(cumulative, point, side="right")), count - 1)])
