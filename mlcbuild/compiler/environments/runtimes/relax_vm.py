"""TVM's virtual machine: a library of `relax.build`, or one of this pipeline with weights.npz beside it, which are the
fields of its function's last argument."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def prepare(threads: int) -> None:
    os.environ["TVM_NUM_THREADS"] = str(threads)
    import tvm  # noqa: F401


def load(
    artifact: Path, inputs: Sequence[str], outputs: Sequence[str], threads: int
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    del threads  # `prepare` says it, before TVM starts them
    import numpy as np
    import tvm
    from tvm import relax

    weights: list[Any] = []
    if artifact.is_dir():
        with np.load(artifact / "weights.npz") as opened:
            weights = [[tvm.runtime.tensor(opened[name]) for name in opened.files]]
        artifact /= "model.so"
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(artifact.resolve())), tvm.cpu())
    function = machine["main"]

    def call(arrays: dict[str, Any]) -> dict[str, Any]:
        made = function(*(tvm.runtime.tensor(arrays[name]) for name in inputs), *weights)
        made = [made] if hasattr(made, "numpy") else list(made)
        return {name: value.numpy() for name, value in zip(outputs, made, strict=True)}

    return call
