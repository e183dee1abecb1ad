"""A library's weights in a file, of any type that packages have: NumPy's own format knows none of ml_dtypes'."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes  # noqa: F401  # NumPy knows its types by name then.
import numpy as np

from tests.compiler.running import Array

_TYPES = "types"


def save_weights(path: Path, weights: Mapping[str, Array]) -> None:
    """Each array as unsigned integers of its own size, and the names of all types."""
    bits = {name: array.view(f"uint{8 * array.dtype.itemsize}") for name, array in weights.items()}
    types = {name: array.dtype.name for name, array in weights.items()}
    np.savez(path, allow_pickle=False, **{_TYPES: np.array(json.dumps(types))}, **bits)


def load_weights(path: Path) -> dict[str, Array]:
    with np.load(path) as saved:
        types = json.loads(str(saved[_TYPES]))
        return {name: saved[name].view(dtype) for name, dtype in types.items()}
