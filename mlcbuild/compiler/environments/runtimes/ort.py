"""ONNX Runtime: what it has optimized already, or any ONNX file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def prepare(threads: int) -> None:
    del threads
    import onnxruntime

    onnxruntime.disable_telemetry_events()


def load(
    artifact: Path, inputs: Sequence[str], outputs: Sequence[str], threads: int
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    del inputs
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # It is optimized already.
    session = onnxruntime.InferenceSession(str(artifact), options, providers=["CPUExecutionProvider"])

    def call(arrays: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(outputs, session.run(list(outputs), arrays), strict=True))

    return call
