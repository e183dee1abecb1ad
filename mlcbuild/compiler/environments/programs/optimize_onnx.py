"""`model` → `optimized`: ONNX Runtime's graph optimizations, done once. Needs onnxruntime.

`level` and `form` are ONNX Runtime's own words. At the level "all" its choices depend on the processor that runs this.
"""

from __future__ import annotations

from pathlib import Path


def run(*, model: Path, optimized: Path, level: str, form: str) -> None:
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{_LEVELS[level]}")
    options.optimized_model_filepath = str(optimized)
    options.add_session_config_entry("session.save_model_format", form.upper())
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # A warning tells what the key already says: that a level depends on the machine.
    try:
        onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise SystemExit(f"ONNX Runtime {onnxruntime.__version__} cannot compile the model: {error}") from None


_LEVELS = {"none": "DISABLE_ALL", "basic": "ENABLE_BASIC", "extended": "ENABLE_EXTENDED", "all": "ENABLE_ALL"}
