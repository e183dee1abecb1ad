"""Kernels that are written in Triton: what attention computes, what CompileTriton makes of it, and who starts it."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import tirx
from tvm.relax.frontend.nn.llm._prefill_kernels import _attention_prefill, _attention_prefill_ragged

from mlcbuild.compiler.backends.cuda import device_functions, triton_launch
from mlcbuild.compiler.backends.cuda.kernels import triton_attention
from mlcbuild.compiler.backends.cuda.schedule import SCHEDULING
from mlcbuild.compiler.backends.cuda.stages import compile_host, compile_triton
from mlcbuild.compiler.passes.canonical_kernel import canonicalize, load_kernel
from mlcbuild.compiler.script_parsing import quick_script_parsing
from mlcbuild.compiler.stages import schedule_kernel
from mlcbuild.errors import StageError
from tests.compiler.pipeline import CUDA_TARGET
from tests.parity_packages import parity_package

parity_package("triton")

_ATTENTION = "mlcbuild/compiler/backends/cuda/triton_kernels/attention.py"
_ALONE = """
import importlib.util, json, sys
from pathlib import Path
from mlcbuild.compiler.backends.cuda.stages import compile_triton
spec = importlib.util.spec_from_file_location("attention", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["attention"] = module
spec.loader.exec_module(module)
told = json.loads(sys.argv[3])
compile_triton.run(
    cubin=Path(sys.argv[2], "a.cubin"), launch=Path(sys.argv[2], "a.json"), kernel=module.prefill, arch="sm_90", **told
)
assert not {"tvm", "torch", "numpy"} & set(sys.modules), sorted({"tvm", "torch", "numpy"} & set(sys.modules))
"""
# Shared memory of a block (CUDA C++ Programming Guide, technical specifications by compute capability).
_SHARED_KIBIBYTES = {"sm_80": 163, "sm_86": 99, "sm_90": 227, "sm_120": 99}


@functools.cache
def _original(arch: str = "sm_90", *, paged: bool = True, head_dim: int = 128, dtype: str = "float16") -> tirx.PrimFunc:
    target = tvm.target.Target({**CUDA_TARGET, "arch": arch})
    with quick_script_parsing():
        if paged:
            return _attention_prefill(2, 8, head_dim, dtype, False, {}, target)
        return _attention_prefill_ragged(2, 8, head_dim, head_dim, dtype, {}, target)


@functools.cache
def _made(arch: str = "sm_90", *, paged: bool = True, head_dim: int = 128, dtype: str = "float16") -> tirx.PrimFunc:
    target = tvm.target.Target({**CUDA_TARGET, "arch": arch})
    make = triton_attention.paged_prefill if paged else triton_attention.ragged_prefill
    return make(_original(arch, paged=paged, head_dim=head_dim, dtype=dtype), target)


def _described(kernel: tirx.PrimFunc) -> dict[str, Any]:
    """What Partition announces of the one kernel that this one starts, without its function."""
    (described,) = canonicalize(kernel).device_kernels
    assert described.pop("function") == "mlcbuild.compiler.backends.cuda.triton_kernels.attention:prefill"
    return described


def _compile(folder: Path, described: dict[str, Any], arch: str) -> tuple[Path, Path]:
    from mlcbuild.compiler.backends.cuda.triton_kernels.attention import prefill

    cubin, launch = folder / f"{described['name']}.{arch}.cubin", folder / f"{described['name']}.launch.json"
    compile_triton.run(cubin=cubin, launch=launch, kernel=prefill, arch=arch, **described)
    return cubin, launch


@pytest.mark.parametrize("rules", ["some", pytest.param("all", marks=pytest.mark.exhaustive)])
def test_attention_is_right_by_the_interpreter(rules: str) -> None:
    parity_package("torch")
    finished = subprocess.run(
        [sys.executable, "-m", "tests.compiler.backends.cuda.triton_interpreted", rules],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert len(finished.stdout.splitlines()) >= 16


@pytest.mark.parametrize(
    ("arch", "head_dim", "dtype"),
    [
        ("sm_80", 128, "bfloat16"),
        ("sm_90", 128, "float16"),
        pytest.param("sm_86", 128, "float16", marks=pytest.mark.exhaustive),
        pytest.param("sm_86", 256, "float16", marks=pytest.mark.exhaustive),
        pytest.param("sm_90", 64, "float16", marks=pytest.mark.exhaustive),
        pytest.param("sm_90", 80, "float16", marks=pytest.mark.exhaustive),
        pytest.param("sm_90", 256, "bfloat16", marks=pytest.mark.exhaustive),
        pytest.param("sm_120", 128, "float16", marks=pytest.mark.exhaustive),
    ],
)
def test_machine_code_fits_the_architecture_that_it_is_for(
    tmp_path: Path, arch: str, head_dim: int, dtype: str
) -> None:
    described = _described(_made(arch, head_dim=head_dim, dtype=dtype))
    cubin, launch = _compile(tmp_path, described, arch)
    data = cubin.read_bytes()
    assert data[:4] == b"\x7fELF"
    # In the ELF header's flags, whose lowest byte was the architecture before CUDA 13.
    assert int(arch.removeprefix("sm_")) in data[48:50]
    assert described["name"].encode() in data
    threads, shared = device_functions.numbers_from_json(launch.read_text(), where="")[described["name"]]
    assert threads == 32 * described["warps"]
    assert 0 < shared <= _SHARED_KIBIBYTES[arch] << 10
    (function,) = device_functions.from_json(launch.read_text(), where="")
    assert len(function.argument_types) == len(described["signature"]) + 2


def test_another_folder_and_lines_above_change_no_byte_and_tvm_and_torch_are_not_loaded(tmp_path: Path) -> None:
    described = _described(_made())
    cubin, launch = _compile(tmp_path, described, "sm_90")
    moved = tmp_path / "quite" / "elsewhere"
    moved.mkdir(parents=True)
    text = Path(_ATTENTION).read_text()
    head, import_line, rest = text.partition("import triton\n")
    (moved / "attention.py").write_text(f"{head}{import_line}# A line above,\n\n\n# and another.\n{rest}")
    subprocess.run(
        [sys.executable, "-c", _ALONE, str(moved / "attention.py"), str(moved), json.dumps(described)],
        check=True,
        env={**os.environ, "HOME": str(moved), "TRITON_CACHE_DIR": str(moved / "cache")},
    )
    assert (moved / "a.cubin").read_bytes() == cubin.read_bytes()
    assert (moved / "a.json").read_bytes() == launch.read_bytes()
    assert str(tmp_path).encode() not in cubin.read_bytes()
    shutil.rmtree(moved)


def test_what_does_not_compile_is_told(tmp_path: Path) -> None:
    described = _described(_made())
    constants = dict(described["constants"])

    def compiled(arch: str = "sm_90", *, lacking: str = "", **other: int) -> None:
        given = [[name, value] for name, value in (constants | other).items() if name != lacking]
        _compile(tmp_path, {**described, "constants": given}, arch)

    with pytest.raises(StageError, match='unknown GPU architecture "sm_9O"'):
        compiled("sm_9O")
    with pytest.raises(StageError, match="prefill and its signature differ in PAGE"):
        compiled(lacking="PAGE")
    with pytest.raises(StageError, match="prefill does not compile for sm_90"):
        compiled(BLOCK_N=48)  # no power of two


@pytest.mark.parametrize("paged", [True, False])
def test_the_host_starts_the_kernel_with_the_numbers_that_the_compiler_told(tmp_path: Path, paged: bool) -> None:
    kernel = canonicalize(_made(paged=paged))
    described = dict(kernel.device_kernels[0])
    name = described["name"]
    launch = tmp_path / "launch.json"
    launch.write_text(device_functions.to_json([], numbers={name: (256, 12345)}))
    (tmp_path / "kernel.json").write_bytes(kernel.data)
    target = {**CUDA_TARGET, "arch": "sm_90"}
    scheduled = tmp_path / f"{kernel.name}.json"
    schedule_kernel.run(
        kernel=tmp_path / "kernel.json",
        scheduled=scheduled,
        signature=tmp_path / "signature.json",
        target=target,
        optimized=True,
        backend=SCHEDULING,
    )
    with_numbers = triton_launch.with_numbers(load_kernel(kernel.data), {name: (256, 12345)})
    assert "256, 12345)" in with_numbers.script()
    compile_host.run(scheduled=scheduled, launches=[launch], object=tmp_path / "kernel.o", target=target)
    assert name.encode() in (tmp_path / "kernel.o").read_bytes()


def test_other_forms_of_a_kernel_have_other_names() -> None:
    names = {
        _described(_made(arch, paged=paged, head_dim=head_dim, dtype=dtype))["name"]
        for arch, paged, head_dim, dtype in (
            ("sm_90", True, 128, "float16"),
            ("sm_80", True, 128, "float16"),
            ("sm_90", False, 128, "float16"),
            ("sm_90", True, 64, "float16"),
            ("sm_90", True, 128, "bfloat16"),
        )
    }
    assert len(names) == 5


def test_tvm_keeps_kernels_that_there_is_none_for() -> None:
    target = {arch: tvm.target.Target({**CUDA_TARGET, "arch": arch}) for arch in ("sm_75", "sm_90")}
    assert triton_attention.fits(_original(), target["sm_90"])
    assert not triton_attention.fits(_original(dtype="float32"), target["sm_90"])
    assert not triton_attention.fits(_original("sm_75"), target["sm_75"])
