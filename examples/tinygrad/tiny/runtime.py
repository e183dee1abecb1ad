"""Runs a tinygrad_library, for `compile_comparison`. Needs numpy."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def prepare(threads: int) -> None:
    del threads  # The library has one.
    import numpy  # noqa: F401


def load(
    artifact: Path, inputs: Sequence[str], outputs: Sequence[str], threads: int
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    del threads
    import numpy as np

    told = json.loads((artifact / "model.json").read_text())
    numbers = np.fromfile(artifact / "weights.bin", dtype=np.float32)
    names = [name for name in told["inputs"] if name not in inputs]
    ends = np.cumsum([np.prod(told["inputs"][name], dtype=int) for name in names])
    weights = {name: part.copy() for name, part in zip(names, np.split(numbers, ends)[:-1], strict=True)}
    model = ctypes.CDLL(str((artifact / "model.so").absolute())).model

    def call(arrays: dict[str, Any]) -> dict[str, Any]:
        for name in inputs:
            if list(arrays[name].shape) != told["inputs"][name]:
                raise ValueError(f"{name} has the shape {arrays[name].shape}, and was compiled for another")
        made = {name: np.empty(told["outputs"][name], np.float32) for name in outputs}
        given = [weights[name] if name in weights else np.ascontiguousarray(arrays[name]) for name in told["inputs"]]
        placed = [*given, *(made[name] for name in told["outputs"])]
        model(*(ctypes.c_void_p(array.ctypes.data) for array in placed))
        return made

    return call
