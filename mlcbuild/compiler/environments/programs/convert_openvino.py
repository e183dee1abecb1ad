"""`model` → OpenVINO's form: `network` and `weights` (model.xml and model.bin), or `blob`, compiled for this processor.

Needs openvino. Nothing is left to the machine: on processors with AMX OpenVINO would otherwise compute in bfloat16.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def convert(*, model: Path, network: Path, weights: Path, half: bool) -> None:
    """Weights are halves where `half` says so, and stay what they are otherwise."""
    import openvino

    openvino.save_model(_read(model), str(network), compress_to_fp16=half)
    if network.with_suffix(".bin") != weights or not weights.exists():
        raise RuntimeError(f"OpenVINO wrote no {weights.name} beside {network.name}")


def compile_model(*, model: Path, blob: Path, precision: str) -> None:
    """`precision` is the type that it computes in, in OpenVINO's words."""
    import openvino

    core = openvino.Core()
    able = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if _CAPABILITIES[precision] not in able:
        raise SystemExit(f"this processor does not compute in {precision}: it has {', '.join(sorted(able))}")
    options = {"INFERENCE_PRECISION_HINT": precision, "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": "1"}
    compiled = core.compile_model(_read(model), "CPU", options)
    content = compiled.export_model()
    blob.write_bytes(content if isinstance(content, bytes) else content.getvalue())


def _read(model: Path) -> Any:
    import openvino

    try:
        return openvino.Core().read_model(str(model))
    except Exception as error:
        raise SystemExit(f"OpenVINO {openvino.__version__} cannot read the model: {error}") from None


_CAPABILITIES = {"f32": "FP32", "f16": "FP16", "bf16": "BF16"}
