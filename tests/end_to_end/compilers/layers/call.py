"""Calls `module`, jax's own form of a layer, with its weights."""

from __future__ import annotations

import json
import os
from pathlib import Path


def run(*, module: Path, weights: Path, cases: Path, report: Path) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    import numpy as np
    from jax import export

    content = weights.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    values = {}
    for name, its in json.loads(content[8:begin]).items():
        first, last = its["data_offsets"]
        values[name] = np.frombuffer(content[begin + first : begin + last], "<f4").reshape(its["shape"])
    inputs = [np.load(path) for path in sorted((cases / "1").glob("in-*.npy"))]
    made = export.deserialize(module.read_bytes()).call(values, *inputs)
    expected = [np.load(path) for path in sorted((cases / "1").glob("out-*.npy"))]
    error = max(float(np.abs(np.asarray(one) - other).max()) for one, other in zip(made, expected, strict=True))
    report.write_text(json.dumps({"cases": [{"error": error, "largest": float(np.abs(expected[0]).max())}]}))
