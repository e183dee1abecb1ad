"""Products with matrices in floats of 8 and 4 bits, on a CPU: the scheduled kernels of a tiny model against the kernels
as they come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler.backends.cpu.kernels.matmul import schedule_matmul
from mlcbuild.compiler.kernels.blocks import inline_all
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler import schemes
from tests.compiler.kernel_running import Array, run, scheduled
from tests.compiler.pipeline import CPU_TARGET, compile_graph
from tests.compiler.tiny_llama import TINY_LLAMA

IN_CI = ("e4m3_e4m3_f16", "nvfp4_bf16")
NAMES = [
    name for name in schemes.NAMES if "float8" in schemes.scheme(name).reader or "float4" in schemes.scheme(name).reader
]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_CI else pytest.mark.exhaustive) for name in NAMES]
)
def test_every_product_of_a_model_is_scheduled_and_right(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY_LLAMA))
    compile_graph(name, CPU_TARGET, tmp_path)
    found = 0
    for variable, kernel in ir.load_module(tmp_path / "phase3.json").functions_items():
        kernel_name = str(variable.name_hint)
        if not isinstance(kernel, tirx.PrimFunc) or "dequantize" not in kernel_name:
            continue
        found += 1
        arrays = [_random(str(buffer.dtype), [_size(size) for size in buffer.shape]) for buffer in kernel.params]
        plain = inline_all(kernel)
        assert plain is not None
        expected = run(plain, arrays)[-1].astype(np.float64)
        scheduled_kernel = scheduled(schedule_matmul, kernel)
        got = run(scheduled_kernel, arrays)[-1].astype(np.float64)
        # The scheduled kernel sums in float32, and rounds no weight to the model's type.
        epsilon = 2.0**-7 if "bf16" in name else 2.0**-9
        np.testing.assert_allclose(got, expected, atol=epsilon * np.abs(expected).max(), rtol=0, err_msg=kernel_name)
    assert found


def _size(size: Any) -> int:
    return int(size) if isinstance(size, int | tirx.IntImm) else 5


def _random(dtype: str, shape: list[int]) -> Array:
    random = np.random.default_rng(3)
    if dtype.startswith("float8"):
        return random.standard_normal(shape).astype(dtype_of(dtype))
    if dtype == "uint8":
        return random.integers(125, 129, shape).astype(np.uint8)
    if dtype.startswith("uint"):
        return random.integers(0, 1 << 32, shape, dtype=np.uint32)
    return random.standard_normal(shape).astype(dtype_of(dtype))
