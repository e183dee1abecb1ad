"""The form in which calibration hands on what it has seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlcbuild.compiler.calibration.statistics import ObservedInput, Statistics, write_index, write_input
from mlcbuild.errors import StageError


def _write(folder: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    rows = np.random.default_rng(3).standard_normal((7, 4), np.float32)
    absolute = np.abs(rows)
    write_input(folder / "0.safetensors", gram=rows.T @ rows, absolute_sum=absolute.sum(0), maximum=absolute.max(0))
    observed = ObservedInput(file="0.safetensors", matrices=("a.weight", "b.weight"), width=4, rows=7)
    write_index(folder, tokens=7, inputs=(observed,))
    return rows


def test_matrices_that_read_the_same_rows_share_their_statistics(tmp_path: Path) -> None:
    rows = _write(tmp_path)
    statistics = Statistics(tmp_path)
    for name in ("a.weight", "b.weight"):
        found = statistics.of(name)
        assert found is not None
        assert found.rows == 7
        np.testing.assert_array_equal(found.gram, rows.T @ rows)
        np.testing.assert_array_equal(found.absolute_sum, np.abs(rows).sum(0))
        np.testing.assert_array_equal(found.maximum, np.abs(rows).max(0))


def test_a_matrix_that_was_not_observed_has_none(tmp_path: Path) -> None:
    _write(tmp_path)
    assert Statistics(tmp_path).of("embedding.weight") is None


def test_a_file_of_other_columns_is_refused(tmp_path: Path) -> None:
    _write(tmp_path)
    write_index(tmp_path, tokens=7, inputs=(ObservedInput(file="0.safetensors", matrices=("a",), width=8, rows=7),))
    with pytest.raises(StageError, match="no statistics of 8 columns"):
        Statistics(tmp_path).of("a")
