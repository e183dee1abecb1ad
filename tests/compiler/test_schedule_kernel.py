"""ScheduleKernel and CompileKernel: files in, files out, the same bytes everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler.backends.cpu.schedule import SCHEDULING
from mlcbuild.compiler.kernels import scheduling
from mlcbuild.compiler.passes.canonical_kernel import canonicalize
from mlcbuild.compiler.stages import compile_kernel, schedule_kernel
from mlcbuild.errors import StageError
from tests.compiler.kernel_running import packed_arrays, packed_product, restored_matrix
from tests.compiler.pipeline import CPU_TARGET


def _schedule(directory: Path, func: tirx.PrimFunc, *, optimized: bool = True, **target: Any) -> str:
    """Runs ScheduleKernel in a directory; the kernel's name."""
    kernel = canonicalize(func)
    (directory / "kernel.json").write_bytes(kernel.data)
    schedule_kernel.run(
        kernel=directory / "kernel.json",
        scheduled=directory / "scheduled.json",
        signature=directory / "signature.json",
        target={**CPU_TARGET, **target},
        optimized=optimized,
        backend=SCHEDULING,
    )
    return kernel.name


def _compile(directory: Path, **target: Any) -> None:
    compile_kernel.run(
        scheduled=directory / "scheduled.json", object=directory / "kernel.o", target={**CPU_TARGET, **target}
    )


def _symbols(path: Path) -> dict[str, str]:
    """Symbols of an object file with their kind, as `nm` has it."""
    listed = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1]: line.split()[-2] for line in listed.splitlines()}


def test_where_a_kernel_comes_from_is_told() -> None:
    func, target = packed_product(16, 96, 1), tvm.target.Target(CPU_TARGET)
    came_scheduled = func.with_attr("tirx.is_scheduled", True)

    def own(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
        return came_scheduled

    def borrowed(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
        return came_scheduled

    def told(rules: tuple[scheduling.Rule, ...], func: tirx.PrimFunc = func, **more: Any) -> str:
        backend = scheduling.Scheduling(rules=rules, tvm_rules=(borrowed,), **more)
        return backend.source(*scheduling.apply_first_rule(func, target, backend.rules))

    assert told((own, borrowed)) == "mlcbuild"
    assert told((borrowed, own)) == "tvm"
    assert told(()) == told((lambda *_: None,)) == "unscheduled"
    assert told((own,), came_scheduled) == "tir"
    assert told((own,), language=lambda _: "assembly") == "assembly"


def test_the_scheduled_kernel_bears_its_content_name(tmp_path: Path) -> None:
    name = _schedule(tmp_path, packed_product(16, 96, 1))
    module = ir.load_module(tmp_path / "scheduled.json")
    (variable,) = [variable for variable, _ in module.functions_items()]
    assert str(variable.name_hint) == name == str(module[variable].attrs["global_symbol"])
    signature = json.loads((tmp_path / "signature.json").read_text())
    assert signature == {"version": 1, "name": name, "source": "mlcbuild", "workspace": [], "index_bits": 64}


def test_the_name_of_the_file_does_not_matter(tmp_path: Path) -> None:
    name = _schedule(tmp_path, packed_product(16, 96, 1))
    moved = tmp_path / "0"
    moved.write_bytes((tmp_path / "kernel.json").read_bytes())
    outputs: dict[str, Any] = {"scheduled": tmp_path / "1", "signature": tmp_path / "2"}
    schedule_kernel.run(kernel=moved, **outputs, target=dict(CPU_TARGET), optimized=True, backend=SCHEDULING)
    assert outputs["scheduled"].read_bytes() == (tmp_path / "scheduled.json").read_bytes()
    assert name in outputs["signature"].read_text()


def test_the_object_defines_the_kernel_and_runs(tmp_path: Path) -> None:
    name = _schedule(tmp_path, packed_product(16, 96, 1))
    _compile(tmp_path)
    assert _symbols(tmp_path / "kernel.o")[f"__tvm_ffi_{name}"] == "T"
    subprocess.run(["ld", "-shared", "-o", tmp_path / "kernel.so", tmp_path / "kernel.o"], check=True)
    arrays = packed_arrays(16, 96, 1, dtype="float32", bits=4, group=32)
    tensors = [tvm.runtime.tensor(array) for array in [*arrays, np.zeros((1, 1, 16), np.float32)]]
    tvm.runtime.load_module(str(tmp_path / "kernel.so"))[name](*tensors)
    expected = arrays[0] @ restored_matrix(arrays[1], arrays[2], bits=4, group=32).T
    np.testing.assert_allclose(tensors[-1].numpy(), expected, atol=1e-5)


@pytest.mark.slow
def test_objects_and_schedules_are_the_same_in_every_process_and_directory(tmp_path: Path) -> None:
    func = packed_product(24, 96, None, residual=True)
    _schedule(tmp_path, func)
    _compile(tmp_path)
    program = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "sys.modules['torch'] = None  # tvm-ffi would import it, which takes seconds\n"
        "from mlcbuild.compiler.backends.cpu.schedule import SCHEDULING\n"
        "from mlcbuild.compiler.stages import compile_kernel, schedule_kernel\n"
        "target = json.loads(sys.argv[2])\n"
        "more = {'scheduled': Path('s'), 'signature': Path('i'), 'optimized': True, 'backend': SCHEDULING}\n"
        "schedule_kernel.run(kernel=Path(sys.argv[1]), target=target, **more)\n"
        "compile_kernel.run(scheduled=Path('s'), object=Path('o'), target=target)\n"
    )
    for seed in (1, 2):
        directory = tmp_path / f"another directory {seed}"
        directory.mkdir()
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "kernel.json"), json.dumps(dict(CPU_TARGET))],
            cwd=directory,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed), "TZ": "Asia/Tokyo"},
        )
        assert (directory / "s").read_bytes() == (tmp_path / "scheduled.json").read_bytes()
        assert (directory / "o").read_bytes() == (tmp_path / "kernel.o").read_bytes()


@pytest.mark.parametrize(
    "target",
    [
        {"mcpu": "x86-64-v2"},
        {"mcpu": "x86-64-v4"},
        {"mcpu": "cortex-a76", "mtriple": "aarch64-linux-gnu"},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_objects_are_made_for_every_processor(tmp_path: Path, target: dict[str, Any], dtype: str) -> None:
    for func in (packed_product(24, 96, 1, dtype=dtype), packed_product(24, 96, None, dtype=dtype, residual=True)):
        name = _schedule(tmp_path, func, **target)
        _compile(tmp_path, **target)
        symbols = _symbols(tmp_path / "kernel.o")
        assert symbols[f"__tvm_ffi_{name}"] == "T"
        # Whoever loads the library has TVM's runtime and the C library, nothing of a compiler's.
        missing = {symbol for symbol, kind in symbols.items() if kind == "U" and not symbol.startswith("TVM")}
        assert missing <= {"memset", "memcpy"}


def test_a_processor_of_the_second_level_gets_the_same_results(tmp_path: Path) -> None:
    """Every x86-64-v3 machine runs x86-64-v2 code."""
    name = _schedule(tmp_path, packed_product(24, 96, None, dtype="float16"), mcpu="x86-64-v2")
    _compile(tmp_path, mcpu="x86-64-v2")
    subprocess.run(["ld", "-shared", "-o", tmp_path / "kernel.so", tmp_path / "kernel.o"], check=True)
    arrays = packed_arrays(24, 96, 5, dtype="float16", bits=4, group=32)
    tensors = [tvm.runtime.tensor(array) for array in [*arrays, np.zeros((1, 5, 24), np.float16)]]
    tvm.runtime.load_module(str(tmp_path / "kernel.so"))[name](*tensors)
    expected = arrays[0].astype(np.float64) @ restored_matrix(arrays[1], arrays[2], bits=4, group=32).T
    np.testing.assert_allclose(tensors[-1].numpy(), expected, atol=2e-3 * np.abs(expected).max())


def test_without_optimization_the_kernel_stays_as_it_is(tmp_path: Path) -> None:
    func = packed_product(16, 96, 1)
    _schedule(tmp_path, func, optimized=False)
    plain = ir.load_module(tmp_path / "scheduled.json")
    assert "gemv" not in plain.script()
    _schedule(tmp_path, func)
    assert "gemv" in ir.load_module(tmp_path / "scheduled.json").script()


def test_a_kernel_that_comes_scheduled_stays_as_it_is(tmp_path: Path) -> None:
    _schedule(tmp_path, packed_product(16, 96, 1).with_attr("tirx.is_scheduled", True))
    assert "gemv" not in ir.load_module(tmp_path / "scheduled.json").script()


def test_the_first_rule_that_fits_schedules() -> None:
    x = te.placeholder((8,), "float32")
    func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1)])
    first, second = func.with_attr("by", 1), func.with_attr("by", 2)
    target = tvm.target.Target(dict(CPU_TARGET))
    chosen = scheduling.apply_rules(func, target, (lambda *_: None, lambda *_: first, lambda *_: second))
    assert int(chosen.attrs["by"]) == 1
    assert scheduling.apply_rules(func, target, (lambda *_: None,)) is func

    def mistaken(kernel: tirx.PrimFunc, _: tvm.target.Target) -> Any:
        return tvm.IRModule({"main": kernel})

    with pytest.raises(StageError, match=r"rule .*mistaken returned IRModule, neither a kernel nor None"):
        scheduling.apply_rules(func, target, (mistaken,))


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff\xfe", b'{"root_index":0,"nodes":[{"type":"None"}]}'])
def test_what_is_no_kernel_is_told_so(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "kernel").write_bytes(data)
    outputs: dict[str, Any] = {"scheduled": tmp_path / "s", "signature": tmp_path / "i"}
    with pytest.raises(StageError, match="kernel is not"):
        schedule_kernel.run(
            kernel=tmp_path / "kernel", **outputs, target=dict(CPU_TARGET), optimized=True, backend=SCHEDULING
        )
    with pytest.raises(StageError, match="kernel"):
        compile_kernel.run(scheduled=tmp_path / "kernel", object=tmp_path / "o", target=dict(CPU_TARGET))


def test_a_kind_of_target_that_tvm_does_not_know_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="abacus"):
        _schedule(tmp_path, packed_product(16, 96, 1), kind="abacus")
