"""`python -m tests.gpu.calibration` finds what differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlcbuild.compiler.calibration.statistics import ObservedInput, Statistics, write_index, write_input
from tests.compiler.tiny_models import Array
from tests.gpu import calibration


def _statistics(folder: Path, gram: Array) -> Statistics:
    folder.mkdir()
    row = np.array([4.0, 2.0], np.float32)
    write_input(folder / "w.safetensors", gram=gram, absolute_sum=row, maximum=row)
    write_index(folder, tokens=3, inputs=[ObservedInput(file="w.safetensors", matrices=("w",), width=2, rows=3)])
    return Statistics(folder)


def test_differences_are_relative_to_the_largest_number(tmp_path: Path) -> None:
    gram = np.array([[8.0, 1.0], [1.0, 2.0]], np.float32)
    one, other = _statistics(tmp_path / "a", gram), _statistics(tmp_path / "b", gram + np.float32(0.5))
    broken = _statistics(tmp_path / "c", gram * np.float32(np.nan))
    assert calibration.differences(one, other) == {"gram": 0.5 / 8, "absolute_sum": 0.0, "maximum": 0.0}
    assert calibration.differences(one, broken)["gram"] == np.inf


def test_integers_of_four_bits_are_counted_one_by_one_and_scales_by_how_far_they_are_off() -> None:
    words = np.array([0x12345678, 0x12345678], np.uint32)
    scales = np.array([1.0, 2.0, -4.0, 0.0], np.float16)
    near, far = np.array([1.001, 2.0, -4.0, 0.0], np.float16), np.array([1.5, 2.0, -4.0, np.nan], np.float16)
    other = words ^ np.array([0x00F00001, 0], np.uint32)  # two of sixteen
    assert calibration.shares({"w": words, "s": scales}, {"w": other, "s": near}) == (2 / 16, 0.0)
    assert calibration.shares({"s": scales}, {"s": far}) == (0.0, 0.5)
    bytes_of = np.array([1, -1, 3, 4], np.int8)
    assert calibration.shares({"w": bytes_of}, {"w": np.array([1, 1, 3, 4], np.int8)}) == (0.25, 0.0)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_processors_with_other_instructions_are_within_the_bounds(tmp_path: Path, kernel_store: Path) -> None:
    calibration.prepare("llama", tmp_path, arch="cpu", kernel_store=kernel_store)
    found = calibration.check("llama", tmp_path)
    assert found["gram"] > 0  # the two libraries do differ
    assert max(found.values()) == found["bound"]
