"""Loads what a compiler made with its own runtime, and measures its error against float64."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def run(*, artifact: Path, cases: Path, report: Path, runtime: str) -> None:
    import numpy as np

    inputs = {path.stem.removeprefix("in-"): np.load(path) for path in sorted(cases.glob("in-*.npy"))}
    expected = {path.stem.removeprefix("out-"): np.load(path) for path in sorted(cases.glob("out-*.npy"))}
    found = {"onnxruntime": _onnxruntime}[runtime](artifact, inputs, expected)
    errors = {name: float(np.abs(found[name] - value).max()) for name, value in expected.items()}
    report.write_text(json.dumps({"error": max(errors.values()), "largest": float(np.abs(expected["y"]).max())}))


def _onnxruntime(artifact: Path, inputs: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # It is optimized already.
    session = onnxruntime.InferenceSession(str(artifact), options, providers=["CPUExecutionProvider"])
    return dict(zip(expected, session.run(list(expected), inputs), strict=True))
