"""OpenVINO: model.xml with model.bin beside it, which it compiles as it loads them, or a blob."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def prepare(threads: int) -> None:
    del threads
    import openvino  # noqa: F401


def load(
    artifact: Path, inputs: Sequence[str], outputs: Sequence[str], threads: int, precision: str = "f32"
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    del inputs
    import openvino

    core = openvino.Core()
    # Whoever loads either form says what to compute in: a blob does not hold it.
    options = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads}
    if artifact.is_dir():
        compiled = core.compile_model(artifact / "model.xml", "CPU", options)
    else:
        compiled = core.import_model(artifact.read_bytes(), "CPU", options)
    request = compiled.create_infer_request()

    def call(arrays: dict[str, Any]) -> dict[str, Any]:
        found = request.infer(arrays)
        return {name: found[name] for name in outputs}

    return call
