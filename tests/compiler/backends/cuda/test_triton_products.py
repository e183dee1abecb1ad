"""Products of 8 bits in Triton: what they compute, where they are put, and what is started for how many rows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax, tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler.backends.cuda import device_functions
from mlcbuild.compiler.backends.cuda.kernels import triton_products
from mlcbuild.compiler.backends.cuda.passes.dispatch_triton_products import (
    BYTES,
    SCHEMES,
    dispatch_triton_products,
    numbers_of,
)
from mlcbuild.compiler.backends.cuda.stages import compile_triton
from mlcbuild.compiler.kernel_attributes import DEVICE_KERNELS
from mlcbuild.compiler.quantization.float8.scheme import Float8Scheme
from tests.compiler.pipeline import CUDA_TARGET, compile_graph
from tests.compiler.tiny_llama import TINY_LLAMA
from tests.parity_packages import parity_package

parity_package("triton")

# Shared memory of a block (CUDA C++ Programming Guide, technical specifications by compute capability).
_SHARED_KIBIBYTES = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_120": 99}


def _target(arch: str) -> tvm.target.Target:
    return tvm.target.Target({**CUDA_TARGET, "arch": arch})


def _phase0(directory: Path, quantization: str, arch: str) -> tvm.IRModule:
    (directory / "config.json").write_text(json.dumps(TINY_LLAMA))
    compile_graph(quantization, {**CUDA_TARGET, "arch": arch}, directory)
    return ir.load_module(directory / "phase0.json")


def _names(module: tvm.IRModule) -> list[str]:
    return [str(variable.name_hint) for variable, _ in module.functions_items()]


def _described(function: tirx.PrimFunc) -> list[dict[str, Any]]:
    described: list[dict[str, Any]] = json.loads(str(function.attrs[DEVICE_KERNELS]))
    return described


def _kernels(arch: str, schemes: Sequence[Float8Scheme]) -> dict[str, dict[str, Any]]:
    """All Triton kernels of schemes, and those of bytes, by name."""
    target = _target(arch)
    found: dict[str, dict[str, Any]] = {}
    x = relax.TensorType((1, tirx.Var("n", "int64"), 4096), "bfloat16")
    for numbers in (*map(numbers_of, schemes), BYTES):
        of_rows = relax.TensorType(x.shape, numbers.of_rows(arch))
        functions = []
        for columns in (4096, 28672):  # between them they have all tiles
            weights = relax.TensorType((columns, 4096), numbers.floats.dtype if numbers.floats else "int8")
            functions.append(triton_products.product([("numbers", of_rows), ("weights", weights)], x, numbers, target))
        if numbers.floats is not None:
            functions.append(triton_products.quantize(x, numbers, target, static=False)[0])
        for function in functions:
            found |= {each["name"]: each for each in _described(function)}
    return found


@pytest.mark.parametrize("rows", ["some", pytest.param("all", marks=pytest.mark.exhaustive)])
def test_products_are_right_by_the_interpreter(rows: str) -> None:
    parity_package("torch")
    finished = subprocess.run(
        [sys.executable, "-m", "tests.compiler.backends.cuda.triton_products_interpreted", rows],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert len(finished.stdout.splitlines()) >= 20


@pytest.mark.parametrize(
    ("arch", "schemes"),
    [
        ("sm_80", SCHEMES[:1]),
        ("sm_90", SCHEMES[:1]),
        *(pytest.param(arch, SCHEMES, marks=pytest.mark.exhaustive) for arch in _SHARED_KIBIBYTES),
    ],
)
def test_machine_code_fits_the_architecture_that_it_is_for(
    tmp_path: Path, arch: str, schemes: Sequence[Float8Scheme]
) -> None:
    from mlcbuild.compiler.backends.cuda.triton_kernels import products

    kernels = _kernels(arch, schemes)
    assert len(kernels) >= 4 * len(schemes)  # two schemes share theirs
    for name, described in kernels.items():
        cubin, launch = tmp_path / f"{name}.cubin", tmp_path / f"{name}.launch.json"
        function = getattr(products, described.pop("function").partition(":")[2])
        compile_triton.run(cubin=cubin, launch=launch, kernel=function, arch=arch, **described)
        data = cubin.read_bytes()
        assert int(arch.removeprefix("sm_")) in data[48:50]  # the ELF header's flags
        _, shared = device_functions.numbers_from_json(launch.read_text(), where="")[name]
        assert shared <= _SHARED_KIBIBYTES[arch] << 10, described


@pytest.mark.parametrize(
    ("quantization", "arch"),
    [
        ("fp8_e4m3fn_bf16_block_scale", "sm_90"),
        ("int8_int8_f16", "sm_80"),
        pytest.param("fp8_e4m3fn_bf16_block_scale_static_activation", "sm_80", marks=pytest.mark.exhaustive),
        pytest.param("fp8_e4m3fn_bf16_channel_scale", "sm_80", marks=pytest.mark.exhaustive),
        pytest.param("e4m3_e4m3_f16", "sm_90", marks=pytest.mark.exhaustive),
        pytest.param("e5m2_e5m2_f16", "sm_90", marks=pytest.mark.exhaustive),
    ],
)
def test_they_take_the_place_of_all_products_of_a_scheme(tmp_path: Path, quantization: str, arch: str) -> None:
    before = _phase0(tmp_path, quantization, arch)
    after = dispatch_triton_products(before, _target(arch))
    relax.analysis.well_formed(after)
    names = " ".join(_names(after))
    replaced = "int8_product" if quantization.startswith("int8") else "round_activations"
    assert replaced in " ".join(_names(before))
    assert replaced not in names
    assert "dequantize" not in names
    text = after["prefill"].script()
    assert "R.matmul" in text, "the head is not quantized"
    # Rows of one text, one new token of one sequence, and of several, times four matrices; more do not differ.
    products = [name for name in _names(after) if name.startswith("NT_scaled_matmul")]
    assert len(products) >= 12


def test_what_a_scheme_does_otherwise_stays(tmp_path: Path) -> None:
    """A kernel that rounds to a half of what the scheme's does is none of the scheme's."""
    module = _phase0(tmp_path, "fp8_e4m3fn_bf16_block_scale", "sm_90")
    for variable, function in module.functions_items():
        if str(variable.name_hint).startswith("round_activations"):
            text = tvm.ir.save_json(function)
            assert "448" in text
            module[variable] = tvm.ir.load_json(text.replace("448", "224"))
    assert "NT_scaled_matmul" not in " ".join(_names(dispatch_triton_products(module, _target("sm_90"))))


def test_older_gpus_and_rows_that_no_block_holds_keep_their_kernels() -> None:
    numbers = numbers_of(SCHEMES[0])
    assert triton_products.fits(numbers, 1 << 20, _target("sm_80"))
    assert not triton_products.fits(numbers, 4096, _target("sm_75"))
    of_rows = triton_products.Numbers(floats=numbers.floats)
    assert triton_products.fits(of_rows, 28672, _target("sm_80"))
    assert not triton_products.fits(of_rows, 1 << 16, _target("sm_80"))


def test_the_host_chooses_by_the_number_of_rows_and_one_row_has_one_kernel() -> None:
    numbers = numbers_of(SCHEMES[0])
    weights = ("weights", relax.TensorType((6144, 4096), "float8_e4m3fn"))

    def started(rows: Any) -> list[dict[str, Any]]:
        x = relax.TensorType((1, rows, 4096), "float8_e4m3fn")
        output = relax.TensorType((1, rows, 6144), "bfloat16")
        return _described(triton_products.product([("numbers", x), weights], output, numbers, _target("sm_90")))

    of_any = [each["name"] for each in started(tirx.Var("n", "int64"))]
    assert len(of_any) == len(set(of_any)) == len(triton_products.tiles(6144)) == 4
    for place, rows in enumerate((1, 40, 100, 1000)):
        assert [each["name"] for each in started(rows)] == [of_any[place]]
