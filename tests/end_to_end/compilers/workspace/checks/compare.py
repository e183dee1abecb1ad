"""Loads what a compiler made with its own runtime, and measures its error against float64."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def run(*, artifact: Path, cases: Path, report: Path, runtime: str) -> None:
    import numpy as np

    inputs = {path.stem.removeprefix("in-"): np.load(path) for path in sorted(cases.glob("in-*.npy"))}
    expected = {path.stem.removeprefix("out-"): np.load(path) for path in sorted(cases.glob("out-*.npy"))}
    if runtime in ("xla", "iree-stablehlo"):  # Weights are arguments of its functions.
        inputs["weights"] = {path.stem.removeprefix("weight-"): np.load(path) for path in cases.glob("weight-*.npy")}
    found = _RUNTIMES[runtime](artifact, inputs, expected)
    errors = {name: float(np.abs(found[name] - value).max()) for name, value in expected.items()}
    report.write_text(json.dumps({"error": max(errors.values()), "largest": float(np.abs(expected["y"]).max())}))


def run_program(*, artifact: Path, printed: Path) -> None:
    """A program of Mojo finds its libraries in the environment."""
    import os
    import subprocess

    from mojo._package_root import get_package_root

    libraries = Path(get_package_root()).absolute() / "lib"
    done = subprocess.run(
        [str(artifact)], env={**os.environ, "LD_LIBRARY_PATH": str(libraries)}, check=True, capture_output=True
    )
    printed.write_bytes(done.stdout)


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
    import numpy as np
    from iree import runtime

    weights = inputs.pop("weights", {})
    taken, given = _ORDERS[len(inputs)]
    context = runtime.SystemContext(config=runtime.Config("local-sync"))
    module = runtime.VmModule.copy_buffer(context.instance, artifact.read_bytes())
    context.add_vm_module(module)
    made = context.modules[module.name]["main" if weights else "model"](
        *(weights[name] for name in sorted(weights)), *(inputs[name] for name in taken)
    )
    made = made if isinstance(made, tuple | list) else (made,)
    return {name: np.asarray(value) for name, value in zip(given, made, strict=True)}


# Inputs and outputs have the order of the model's; the files of cases are sorted.
_ORDERS = {3: (["x", "past_keys", "past_values"], ["y", "keys", "values"]), 1: (["x"], ["y"])}


def _aoti(artifact: Path, inputs: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    import safetensors
    import torch

    loaded = torch._inductor.aoti_load_package(str(artifact / "model.pt2"))
    values: dict[str, Any] = {}
    for name in ("weights", "constants"):
        with safetensors.safe_open(artifact / f"{name}.safetensors", framework="pt") as opened:
            values |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    loaded.load_constants({name: values[name] for name in loaded.get_constant_fqns()}, check_full_update=True)
    return _torch(loaded, inputs, expected)


def _exported(artifact: Path, inputs: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    import torch

    return _torch(torch.export.load(str(artifact)).module(), inputs, expected)


def _torch(module: Any, inputs: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    import torch

    taken, given = _ORDERS[len(inputs)]
    with torch.no_grad():
        made = module(*(torch.from_numpy(inputs[name]) for name in taken))
    made = made if isinstance(made, tuple | list) else (made,)
    return {name: value.numpy() for name, value in zip(given, made, strict=True)}


def _executorch(artifact: Path, inputs: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    import torch
    from executorch.runtime import Runtime

    taken, given = _ORDERS[len(inputs)]
    method = Runtime.get().load_program(artifact).load_method("forward")
    made = method.execute([torch.from_numpy(inputs[name]) for name in taken])
    return {name: value.numpy() for name, value in zip(given, made, strict=True)}


def _xla(artifact: Path, inputs: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    import pickle

    import numpy as np
    from jax.experimental import serialize_executable

    weights = inputs.pop("weights")
    taken, given = _ORDERS[len(inputs)]
    loaded = serialize_executable.deserialize_and_load(*pickle.loads(artifact.read_bytes()))
    made = loaded(weights, *(inputs[name] for name in taken))
    made = made if isinstance(made, tuple | list) else (made,)
    return {name: np.asarray(value) for name, value in zip(given, made, strict=True)}


_RUNTIMES = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "iree": _iree,
    "iree-stablehlo": _iree,
    "aoti": _aoti,
    "exported": _exported,
    "executorch": _executorch,
    "xla": _xla,
}
