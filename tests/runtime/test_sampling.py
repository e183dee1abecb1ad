"""Tokens are chosen as asked, and the same again."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from mlcbuild.errors import UsageError
from mlcbuild.runtime.sampling import Sampler, Sampling


def test_greedy_takes_the_first_of_the_likeliest() -> None:
    assert Sampler(Sampling()).choose(np.array([0.0, 3.0, 3.0, -1.0], np.float32)) == 1


def test_same_seed_chooses_the_same() -> None:
    logits = np.random.default_rng(0).standard_normal(500).astype(np.float32)

    def choices(seed: int) -> list[int]:
        sampler = Sampler(Sampling(temperature=1.0, seed=seed))
        return [sampler.choose(logits) for _ in range(20)]

    assert choices(3) == choices(3)
    assert choices(3) != choices(4)


def test_frequencies_follow_the_softmax() -> None:
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    sampler = Sampler(Sampling(temperature=2.0, seed=1))
    counts = Counter(sampler.choose(np.log(probabilities) * 2) for _ in range(20_000))
    found = np.array([counts[token] for token in range(4)]) / 20_000
    # Five standard deviations of a share among 20,000 draws.
    assert (np.abs(found - probabilities) < 5 * np.sqrt(0.25 / 20_000)).all()


@pytest.mark.parametrize(("top_p", "allowed"), [(0.45, {2}), (0.5, {2}), (0.6, {2, 0}), (0.95, {2, 0, 1}), (1.0, None)])
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p: float, allowed: set[int] | None) -> None:
    logits = np.log(np.array([0.3, 0.15, 0.5, 0.05]))
    sampler = Sampler(Sampling(temperature=1.0, top_p=top_p, seed=2))
    assert {sampler.choose(logits) for _ in range(2_000)} == (allowed or {0, 1, 2, 3})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": -1.0}, "temperature is -1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Sampling(**values)  # type: ignore[arg-type]
