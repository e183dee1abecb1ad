"""Arithmetic of float16 on whole arrays gives what NumPy computes number by number."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from mlcbuild.compiler.quantization.float16_arithmetic import round_fractions, widened

_EVERY = np.arange(1 << 16, dtype=np.uint16)


def test_every_number_is_widened() -> None:
    numbers = _EVERY.view(np.float16)
    assert np.array_equal(widened(numbers), numbers.astype(np.float32), equal_nan=True)
    others = np.arange(8, dtype=np.float32).astype(ml_dtypes.bfloat16)
    assert widened(others).tolist() == list(range(8))


def test_fractions_are_rounded_as_a_cast_rounds_them() -> None:
    random = np.random.default_rng(2)
    numbers = (random.uniform(1, 2, 1 << 16) * np.exp2(random.integers(-14, 15, 1 << 16))).astype(np.float32)
    halves = _EVERY[0x400:0x7BFF].view(np.float16).astype(np.float32)
    between = (halves[1:] + halves[:-1]) / 2  # ties
    for each in (numbers, halves, between, -between, np.zeros(1, np.float32)):
        found = each.copy()
        round_fractions(found)
        assert np.array_equal(found, each.astype(np.float16).astype(np.float32))


def test_what_is_no_number_stays_so() -> None:
    numbers = np.array([np.nan, np.inf, -np.inf], np.float32)
    round_fractions(numbers)
    assert np.array_equal(numbers, [np.nan, np.inf, -np.inf], equal_nan=True)
