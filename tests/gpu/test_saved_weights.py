"""Weights come back from their file as they went in, in every type that schemes store."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.compiler.running import Array
from tests.gpu.saved_weights import load_weights, save_weights

TYPES = (
    np.float32,
    np.float16,
    np.uint32,
    np.uint8,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_arrays_come_back(tmp_path: Path, dtype: type, shape: tuple[int, ...]) -> None:
    array: Array = np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype)
    save_weights(tmp_path / "weights.npz", {"a.weight": array})
    found = load_weights(tmp_path / "weights.npz")["a.weight"]
    assert found.dtype == array.dtype
    assert np.array_equal(found.astype(np.float32), array.astype(np.float32))
