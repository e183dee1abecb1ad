"""XLA: model.xla, an executable for processors, and weights.npz beside it, which is its first argument."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def prepare(threads: int) -> None:
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
        "PJRT_NPROC": str(threads),
        "NPROC": str(threads),
    }
    import jax

    jax.devices()


def load(
    artifact: Path, inputs: Sequence[str], outputs: Sequence[str], threads: int
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    del threads  # `prepare` says it, before XLA starts them
    import pickle

    import jax
    import numpy as np
    from jax.experimental import serialize_executable

    executable = serialize_executable.deserialize_and_load(*pickle.loads((artifact / "model.xla").read_bytes()))
    with np.load(artifact / "weights.npz") as opened:
        weights = jax.device_put(dict(opened))

    def call(arrays: dict[str, Any]) -> dict[str, Any]:
        made = jax.tree.leaves(executable(weights, *(arrays[name] for name in inputs)))
        return {name: np.asarray(value) for name, value in zip(outputs, made, strict=True)}

    return call
