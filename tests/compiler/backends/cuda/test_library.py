"""A library for a GPU: machine code of every kernel for each architecture, no text, made where no GPU is."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tvm
from tvm import te, tirx
from tvm.s_tir import dlight

from mlcbuild.compiler import ir, library_image
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.backends.cuda import device_functions
from mlcbuild.compiler.backends.cuda.dependent_launch import TAG
from mlcbuild.compiler.backends.cuda.link import LINKING
from mlcbuild.compiler.backends.cuda.stages import compile_device, compile_kernel
from mlcbuild.compiler.stages import link
from mlcbuild.errors import StageError
from tests.compiler.backends.cuda.gpu_runtime import run_with_cuda_runtime
from tests.compiler.pipeline import CPU_TARGET, CUDA_TARGET, finish_library
from tests.compiler.small_graph import write_small_graph

ARCHITECTURES = ("sm_80", "sm_90")

_LOAD = """
machine = tvm.runtime.load_module(arguments[0])
native, = machine.imports
assert (machine.kind, native.kind) == ("relax.VMExecutable", "library")
assert {module.kind for module in native.imports} == {"cuda"}
for name in arguments[1:]:
    assert native.get_function(name, query_imports=True) is not None, name
print(len(native.imports))
"""
# What TVM itself writes into a library, where it has a driver and is given the machine code.
_TVM_MODULE = """
import pathlib
from mlcbuild.compiler import ir, target as targets
import json
scheduled, cubin, target, out = arguments
code = pathlib.Path(cubin).read_bytes()
tvm_ffi.register_global_func("tvm_callback_cuda_compile", lambda text: code, override=True)
parsed = targets.parse(json.loads(target))
with parsed:
    library = tvm.tirx.build(ir.load_module(pathlib.Path(scheduled)), target=parsed)
pack = tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")
pathlib.Path(out).write_bytes(pack(library).numpy().tobytes())
"""
_COMPILE = """
import sys
from pathlib import Path
from tests.compiler.pipeline import CUDA_TARGET, finish_library
from tests.compiler.small_graph import write_small_graph
write_small_graph(Path(sys.argv[1]))
finish_library(CUDA_TARGET, Path(sys.argv[1]), architectures=("sm_80", "sm_90"))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished small library for two architectures."""
    directory = tmp_path_factory.mktemp("library")
    write_small_graph(directory)
    finish_library(CUDA_TARGET, directory, architectures=ARCHITECTURES)
    return directory


def kernels(built: Path) -> list[str]:
    return [str(name) for name in json.loads((built / "manifest.json").read_text())["kernels"]]


def test_it_holds_the_machine_code_of_every_kernel_for_each_architecture_and_no_text(built: Path) -> None:
    library = (built / "lib.so").read_bytes()
    cubins = [built / "cubins" / f"{name}.{arch}.cubin" for name in kernels(built) for arch in ARCHITECTURES]
    assert len(cubins) == 4
    for cubin in cubins:
        assert cubin.read_bytes() in library
    for word in (b"__global__", b"#include", b"__launch_bounds__", b".version ", b".visible .entry"):
        assert word not in library


@pytest.mark.slow
def test_tvms_cuda_runtime_loads_it_and_finds_every_device_function(built: Path, tmp_path: Path) -> None:
    names = [f"{name}_kernel" for name in kernels(built)]
    assert run_with_cuda_runtime(tmp_path, _LOAD, str(built / "lib.so"), *names).strip() == str(len(names))


@pytest.mark.slow
def test_a_device_module_is_byte_for_byte_what_tvm_writes_where_it_has_a_driver(built: Path, tmp_path: Path) -> None:
    name = kernels(built)[0]
    cubin, theirs = built / "cubins" / f"{name}.sm_90.cubin", tmp_path / "theirs"
    scheduled = built / "scheduled" / f"{name}.json"
    run_with_cuda_runtime(
        tmp_path, _TVM_MODULE, str(scheduled), str(cubin), json.dumps(CUDA_TARGET, default=dict), str(theirs)
    )
    native, device = library_image.read(theirs.read_bytes())
    assert (native.kind, device.kind) == ("_lib", "cuda")
    launch = (built / "launches" / f"{name}.launch.json").read_text()
    functions = device_functions.from_json(launch, where=name)
    assert device.data == device_functions.to_module(functions, cubin.read_bytes())


@pytest.mark.slow
def test_two_processes_in_two_directories_make_equal_files(tmp_path: Path) -> None:
    directories = (tmp_path / "one", tmp_path / "another" / "deeper")
    root = Path(__file__).parents[4]
    for seed, directory in enumerate(directories):
        directory.mkdir(parents=True)
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(root)}
        subprocess.run([sys.executable, "-c", _COMPILE, str(directory)], cwd=directory, env=environment, check=True)
    first, second = (
        {
            str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in directory.rglob("*")
            if path.is_file()
        }
        for directory in directories
    )
    assert first == second
    assert sum(name.endswith(".fatbin") for name in first) == 2
    for path in directories[0].rglob("*"):
        if path.is_file():
            assert str(tmp_path).encode() not in path.read_bytes(), path.name
            assert sys.prefix.encode() not in path.read_bytes(), path.name


def _compiled(built: Path, directory: Path, arch: str) -> tuple[str, list[list[str]]]:
    """The text of the first kernel, and the tags of what launches each of its functions."""
    name = kernels(built)[0]
    compile_kernel.run(
        scheduled=built / "scheduled" / f"{name}.json",
        object=directory / "k.o",
        target={**CUDA_TARGET, "arch": arch},
        device_source=directory / "k.cu",
        launch=directory / "k.json",
    )
    launched = json.loads((directory / "k.json").read_text())["functions"]
    return (directory / "k.cu").read_text(), [function["launch_parameters"] for function in launched]


def test_the_text_is_the_same_for_architectures_before_sm_90_and_is_lean(built: Path, tmp_path: Path) -> None:
    text, launched = _compiled(built, tmp_path, "sm_86")
    assert text == (built / "sources" / f"{kernels(built)[0]}.cu").read_text()
    assert "cuda/std" not in text
    assert "griddepcontrol" not in text
    assert not any(TAG in tags for tags in launched)


@pytest.mark.parametrize("arch", ["sm_90", "sm_90a", "sm_120"])
def test_from_sm_90_on_functions_are_launched_early_and_wait(built: Path, tmp_path: Path, arch: str) -> None:
    text, launched = _compiled(built, tmp_path, arch)
    assert "cuda/std" not in text
    assert text.count("  mlcbuild_wait_for_inputs();\n") == len(launched) > 0
    assert all(TAG in tags for tags in launched)


def test_a_kernel_that_no_rule_has_bound_to_threads_is_refused(built: Path, tmp_path: Path) -> None:
    write_small_graph(tmp_path)
    finish_library(CPU_TARGET, tmp_path)
    scheduled = next(iter((tmp_path / "scheduled").iterdir()))
    with pytest.raises(StageError, match="binds no loop to the threads of a GPU"):
        compile_kernel.run(
            scheduled=scheduled,
            object=tmp_path / "k.o",
            target=dict(CUDA_TARGET),
            device_source=tmp_path / "k.cu",
            launch=tmp_path / "k.json",
        )


@pytest.mark.parametrize(
    ("dtype", "compute"),
    [
        ("float32", tirx.exp),
        ("float16", tirx.erf),
        ("float16", lambda x: tirx.if_then_else(x > x, x, tirx.infinity("float16"))),
        ("bfloat16", lambda x: te.max(x, tirx.exp(x))),
        ("float8_e4m3fn", lambda x: x.astype("float16")),
        ("int8", lambda x: x + x),
        ("int64", lambda x: tirx.max(x, tirx.const(3, "int64"))),
        ("uint32", tirx.popcount),
    ],
)
def test_the_lean_text_has_all_that_numbers_of_each_kind_take(
    tmp_path: Path, dtype: str, compute: Callable[[tirx.Expr], tirx.Expr]
) -> None:
    given = te.placeholder((64, 64), dtype, name="given")
    made = te.compute((64, 64), lambda i, j: compute(given[i, j]), name="made")
    function = te.create_prim_func([given, made]).with_attr("global_symbol", "k")
    with targets.parse(CUDA_TARGET):
        scheduled = dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(tvm.IRModule({"k": function}))
    ir.save_module(scheduled, tmp_path / "k.json")
    source = tmp_path / "k.cu"
    compile_kernel.run(
        scheduled=tmp_path / "k.json",
        object=tmp_path / "k.o",
        target=dict(CUDA_TARGET),
        device_source=source,
        launch=tmp_path / "k.launch.json",
    )
    compile_device.run(source=source, cubin=tmp_path / "k.cubin", arch="sm_90")
    assert b"k_kernel" in (tmp_path / "k.cubin").read_bytes()


def _link(built: Path, library: Path, **changes: object) -> None:
    names = kernels(built)
    arguments: dict[str, object] = {
        "executable": built / "executable.bin",
        "shape_functions": built / "shape_functions.o",
        "objects": tuple(built / "objects" / f"{name}.o" for name in names),
        "device_code": tuple(built / "device_code" / f"{name}.fatbin" for name in names),
        "launches": tuple(built / "launches" / f"{name}.launch.json" for name in names),
        "library": library,
        "target": dict(CUDA_TARGET),
        "backend": LINKING,
    }
    link.run(**(arguments | changes))  # type: ignore[arg-type]


def test_the_order_of_files_does_not_count(built: Path, tmp_path: Path) -> None:
    code = tuple(sorted((built / "device_code").iterdir(), reverse=True))
    _link(built, tmp_path / "lib.so", device_code=code)
    assert (tmp_path / "lib.so").read_bytes() == (built / "lib.so").read_bytes()


@pytest.mark.parametrize(("left_out", "told"), [("device_code", "no device code"), ("launches", "no launch")])
def test_a_kernel_without_its_other_half_is_told(built: Path, tmp_path: Path, left_out: str, told: str) -> None:
    with pytest.raises(StageError, match=f"{kernels(built)[0]} has {told}"):
        _link(built, tmp_path / "lib.so", **{left_out: tuple((built / left_out).glob(f"{kernels(built)[1]}*"))})


def test_a_launch_that_is_none_is_told(built: Path, tmp_path: Path) -> None:
    names = kernels(built)
    for name in names:
        (tmp_path / f"{name}.launch.json").write_text('{"version": 7}')
    with pytest.raises(StageError, match=r"\.launch\.json is not a list of device functions: version 7"):
        _link(built, tmp_path / "lib.so", launches=tuple(tmp_path.glob("*.launch.json")))
