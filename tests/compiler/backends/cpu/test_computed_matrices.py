"""Products with matrices in floats of 8 and 4 bits, in blocks of GGUF, and with experts in bytes, on a CPU: the
scheduled kernels of a tiny model against the kernels as they come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler.backends.cpu.kernels.expert_product import schedule_expert_product
from mlcbuild.compiler.backends.cpu.kernels.matmul import schedule_matmul
from mlcbuild.compiler.kernels.blocks import inline_all
from mlcbuild.compiler.kernels.scheduling import Rule
from tests.compiler import schemes
from tests.compiler.kernel_arguments import random_arguments
from tests.compiler.kernel_running import run, scheduled
from tests.compiler.pipeline import CPU_TARGET, compile_graph
from tests.compiler.tiny_llama import TINY_LLAMA

_READERS = ("float8", "float4", "ggml")
NAMES = [name for name in schemes.NAMES if any(reader in schemes.scheme(name).reader for reader in _READERS)]
_WIDE = TINY_LLAMA | {"hidden_size": 256, "intermediate_size": 256}  # rows of whole blocks of K-quants
_EXPERTS = _WIDE | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}


def _in_ci(names: list[str], some: tuple[str, ...]) -> list[Any]:
    return [pytest.param(name, marks=() if name in some else pytest.mark.exhaustive) for name in names]


@pytest.mark.parametrize("name", _in_ci(NAMES, ("e4m3_e4m3_f16", "nvfp4_bf16", "q5_k_f16", "q6_k_f16")))
def test_every_product_of_a_model_is_scheduled_and_right(name: str, tmp_path: Path) -> None:
    compared = _compare(name, _WIDE if "ggml" in schemes.scheme(name).reader else TINY_LLAMA, schedule_matmul, tmp_path)
    assert compared >= 4


@pytest.mark.parametrize("name", _in_ci([*NAMES, "int8_int8_f16"], ("fp8_e4m3fn_bf16_block_scale", "q4_k_f16")))
def test_products_with_experts_are_scheduled_and_right(name: str, tmp_path: Path) -> None:
    assert _compare(name, _EXPERTS, schedule_expert_product, tmp_path, experts=True) >= 2


def _compare(name: str, config: dict[str, object], rule: Rule, directory: Path, *, experts: bool = False) -> int:
    """How many kernels that restore a matrix of a model were compared: products with experts, or all others."""
    (directory / "config.json").write_text(json.dumps(config))
    compile_graph(name, CPU_TARGET, directory)
    found = 0
    for variable, kernel in ir.load_module(directory / "phase3.json").functions_items():
        kernel_name = str(variable.name_hint)
        if not isinstance(kernel, tirx.PrimFunc) or "dequantize" not in kernel_name or "take" in kernel_name:
            continue
        if ("expert" in kernel_name) != experts:
            continue
        found += 1
        arrays = random_arguments(kernel, schemes.scheme(name), size=5)
        plain = inline_all(kernel)
        assert plain is not None
        expected = run(plain, arrays)[-1].astype(np.float64)
        got = run(scheduled(rule, kernel), arrays)[-1].astype(np.float64)
        # The scheduled kernel sums in float32, and rounds no weight to the model's type. The plain one of experts sums
        # 256 numbers in that type, which is off by some percent in bfloat16.
        epsilon = 2.0**-4 if experts else 2.0**-7 if "bf16" in name else 2.0**-9
        np.testing.assert_allclose(got, expected, atol=epsilon * np.abs(expected).max(), rtol=0, err_msg=kernel_name)
    return found
