"""Products with experts' matrices in Triton: what they compute, where they are put, and their machine code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax, tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler.backends.cuda import device_functions
from mlcbuild.compiler.backends.cuda.kernels import triton_expert_products
from mlcbuild.compiler.backends.cuda.passes.dispatch_triton_products import (
    SCHEMES,
    dispatch_triton_products,
    numbers_of,
)
from mlcbuild.compiler.backends.cuda.stages import compile_triton
from mlcbuild.compiler.kernel_attributes import DEVICE_KERNELS
from tests.compiler.pipeline import CUDA_TARGET, compile_graph
from tests.compiler.test_mixtures import MODELS
from tests.parity_packages import parity_package

parity_package("triton")

_EXPERTS, _COLUMNS, _INNER = 8, 28672, 4096  # Mixtral's


def _described(rows: Any, arch: str) -> list[dict[str, Any]]:
    numbers = numbers_of(SCHEMES[0])
    chosen = relax.TensorType((rows, 2), "int32")
    operands = [
        ("numbers", relax.TensorType((rows, _INNER), numbers.of_rows(arch))),
        ("scales", relax.TensorType((_INNER // 128, rows), "float32")),
        ("experts", chosen),
        ("weights", relax.TensorType((_EXPERTS, _COLUMNS, _INNER), "float8_e4m3fn")),
        ("weight_scales", relax.TensorType((_EXPERTS, _COLUMNS // 128, _INNER // 128), "float32")),
        ("sources", chosen),
    ]
    target = tvm.target.Target({**CUDA_TARGET, "arch": arch})
    output = relax.TensorType((rows, 2, _COLUMNS), "bfloat16")
    function = triton_expert_products.product(operands, output, numbers, target)
    described: list[dict[str, Any]] = json.loads(str(function.attrs[DEVICE_KERNELS]))
    return described


@pytest.mark.parametrize("schemes", ["some", pytest.param("all", marks=pytest.mark.exhaustive)])
def test_products_are_right_by_the_interpreter(schemes: str) -> None:
    parity_package("torch")
    finished = subprocess.run(
        [sys.executable, "-m", "tests.compiler.backends.cuda.triton_experts_interpreted", schemes],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert len(finished.stdout.splitlines()) >= 24


@pytest.mark.parametrize("quantization", ["fp8_e4m3fn_bf16_block_scale", "e4m3_e4m3_f16"])
def test_they_take_the_place_of_all_products_with_experts(tmp_path: Path, quantization: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODELS["mixtral"]))
    compile_graph(quantization, {**CUDA_TARGET, "arch": "sm_90"}, tmp_path)
    target = tvm.target.Target({**CUDA_TARGET, "arch": "sm_90"})
    after = dispatch_triton_products(ir.load_module(tmp_path / "phase0.json"), target)
    relax.analysis.well_formed(after)
    names = [str(variable.name_hint) for variable, _ in after.functions_items()]
    assert not any(name.startswith(("expert_matmul", "round_activations", "dequantize")) for name in names)
    # Two matrices, of one token and of several.
    assert sum(name.startswith("grouped_matmul") for name in names) == 4


@pytest.mark.parametrize("arch", ["sm_90", pytest.param("sm_80", marks=pytest.mark.exhaustive)])
def test_machine_code_is_made_for_each_choice_of_the_host(tmp_path: Path, arch: str) -> None:
    from mlcbuild.compiler.backends.cuda.triton_kernels.expert_products import expert_product

    of_any = _described(tirx.Var("n", "int64"), arch)
    assert len(of_any) == len(triton_expert_products.tiles(_EXPERTS)) > 1
    assert [each["name"] for each in _described(1, arch)] == [of_any[0]["name"]]
    assert [each["name"] for each in _described(4096, arch)] == [of_any[-1]["name"]]
    for described in of_any:
        name = described["name"]
        del described["function"]
        cubin, launch = tmp_path / f"{name}.cubin", tmp_path / f"{name}.launch.json"
        compile_triton.run(cubin=cubin, launch=launch, kernel=expert_product, arch=arch, **described)
        _, shared = device_functions.numbers_from_json(launch.read_text(), where="")[name]
        assert 0 < shared <= 163 << 10
