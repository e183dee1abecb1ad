"""Loads what a compiler made with its own runtime, and measures its error against float64."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def run(*, artifact: Path, cases: Path, report: Path, runtime: str) -> None:
    import numpy as np

    inputs = {path.stem.removeprefix("in-"): np.load(path) for path in sorted(cases.glob("in-*.npy"))}
    expected = {path.stem.removeprefix("out-"): np.load(path) for path in sorted(cases.glob("out-*.npy"))}
    found = {"onnxruntime": _onnxruntime, "openvino": _openvino, "iree": _iree}[runtime](artifact, inputs, expected)
    errors = {name: float(np.abs(found[name] - value).max()) for name, value in expected.items()}
    report.write_text(json.dumps({"error": max(errors.values()), "largest": float(np.abs(expected["y"]).max())}))


def _onnxruntime(artifact: Path, inputs: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # It is optimized already.
    session = onnxruntime.InferenceSession(str(artifact), options, providers=["CPUExecutionProvider"])
    return dict(zip(expected, session.run(list(expected), inputs), strict=True))


def _openvino(artifact: Path, inputs: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Whoever loads either form says what to compute in: a blob does not hold it."""
    import openvino

    core, options = openvino.Core(), {"INFERENCE_PRECISION_HINT": "f32"}
    if artifact.is_dir():
        compiled = core.compile_model(artifact / "model.xml", "CPU", options)
    else:
        compiled = core.import_model(artifact.read_bytes(), "CPU", options)
    found = compiled(inputs)
    return {name: found[name] for name in expected}


def _iree(artifact: Path, inputs: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Inputs and outputs have the order of the model's; the files of cases are sorted."""
    import numpy as np
    from iree import runtime

    orders = {3: (["x", "past_keys", "past_values"], ["y", "keys", "values"]), 1: (["x"], ["y"])}
    taken, given = orders[len(inputs)]
    context = runtime.SystemContext(config=runtime.Config("local-sync"))
    module = runtime.VmModule.copy_buffer(context.instance, artifact.read_bytes())
    context.add_vm_module(module)
    made = context.modules[module.name]["model"](*(inputs[name] for name in taken))
    made = made if isinstance(made, tuple | list) else (made,)
    return {name: np.asarray(value) for name, value in zip(given, made, strict=True)}
