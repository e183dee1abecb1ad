"""MAX: model.mef, and weights.npz beside it, which it is loaded with."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def prepare(threads: int) -> None:
    """MAX has one thread for each processor that its process may use."""
    os.environ |= {"MODULAR_TELEMETRY_ENABLED": "0", "MODULAR_CACHE_DIR": f"{os.environ['TMPDIR']}/modular"}
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    from max import engine  # noqa: F401


def load(
    artifact: Path, inputs: Sequence[str], outputs: Sequence[str], threads: int
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    del threads
    import numpy as np
    from max import driver, engine

    with np.load(artifact / "weights.npz") as opened:
        weights = dict(opened)
    session = engine.InferenceSession(devices=[driver.CPU()])
    model = session.init(engine.read(artifact / "model.mef"), weights_registry=weights)

    def call(arrays: dict[str, Any]) -> dict[str, Any]:
        made = model.execute(*(arrays[name] for name in inputs))
        return {name: value.to_numpy() for name, value in zip(outputs, made, strict=True)}

    return call
