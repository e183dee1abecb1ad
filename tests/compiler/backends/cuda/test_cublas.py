"""Products by cuBLAS: which are, what the calls hand over, and what follows them.

No GPU is needed: the library that is loaded computes its products on the CPU (`cublas_on_cpu.c`).
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler.backends.cpu.link import LINKING
from mlcbuild.compiler.backends.cuda import schedule
from mlcbuild.compiler.backends.cuda.kernels.cublas_product import calls_cublas, schedule_cublas_product
from mlcbuild.compiler.backends.cuda.libraries.cublas import LIBRARY
from mlcbuild.compiler.backends.cuda.libraries.cublas_interface import WORKSPACE_BYTES
from mlcbuild.compiler.backends.cuda.schedule_cublas import SCHEDULING
from mlcbuild.compiler.backends.cuda.stages import compile_library
from mlcbuild.compiler.kernels.building import replace_body
from mlcbuild.compiler.kernels.scheduling import ChosenShape, apply_first_rule
from mlcbuild.compiler.stages import link_kernel
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET, Array, run_cuda
from tests.compiler.kernel_running import packed_product, plain_product, run, silu_gated
from tests.compiler.pipeline import compile_graph
from tests.compiler.tiny_llama import TINY_LLAMA

TARGET = tvm.target.Target(CUDA_TARGET)
N, K = 64, 128
needs_gxx = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")


def _kernel(fewest: int, *, gated: bool = False) -> tirx.PrimFunc:
    func = plain_product(N, K, None, dtype="float16", gated=gated)
    made = schedule_cublas_product.with_shape(func, TARGET, {"fewest": fewest})
    assert made is not None
    return SCHEDULING.lift_workspace(made)[0]


def _loaded(directory: Path, first: str) -> ctypes.CDLL:
    """What calls cuBLAS, with `first` as the file that is looked for, in this process."""
    source = LIBRARY.source.replace('__attribute__((visibility("hidden")))', "").replace(LIBRARY.files[0], first)
    source = source.replace(LIBRARY.files[1], first)
    library = dataclasses.replace(LIBRARY, source=source)
    compile_library.run(object=directory / "calls.o", library=library)
    made = directory / "calls.so"
    subprocess.run(["g++", "-shared", "-o", str(made), str(directory / "calls.o")], check=True)
    return ctypes.CDLL(str(made), mode=ctypes.RTLD_GLOBAL)


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The library that computes on the CPU, which the calls of this process find."""
    directory = tmp_path_factory.mktemp("cublas")
    made = directory / "cublas_on_cpu.so"
    source = Path(__file__).with_name("cublas_on_cpu.c")
    command = ["g++", "-x", "c", "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", str(made), str(source)]
    subprocess.run(command, check=True)
    _loaded(directory, str(made))
    return ctypes.CDLL(str(made))


def _product(rows: int, *, gated: bool = False) -> tuple[list[Array], Array]:
    random = np.random.default_rng(rows)
    x = random.standard_normal((1, rows, K)).astype(np.float16)
    matrix = random.standard_normal((N, K)).astype(np.float16)
    expected = x.astype(np.float64) @ matrix.astype(np.float64).T
    if gated:
        expected = silu_gated(expected)
    return [x, matrix, np.zeros(expected.shape, np.float16)], expected


def _workspace() -> Array:
    return np.zeros(WORKSPACE_BYTES, np.uint8)


@needs_gxx
def test_many_vectors_are_multiplied_by_cublas_and_few_by_our_own_kernels(on_cpu: ctypes.CDLL, programs: Path) -> None:
    kernel = _kernel(17)
    asked = ctypes.c_int.in_dll(on_cpu, "asked")
    for rows in (3, 16, 17, 40):
        arrays, expected = _product(rows)
        before = asked.value
        got = run_cuda(kernel, [*arrays, _workspace()], programs)
        np.testing.assert_allclose(got[2], expected, atol=2e-2, rtol=2e-3)
        assert (asked.value > before) == (rows >= 17)
        assert got[3].any() == (rows >= 17)


@needs_gxx
def test_what_follows_the_product_reads_it(on_cpu: ctypes.CDLL, programs: Path) -> None:
    assert on_cpu
    arrays, expected = _product(40, gated=True)
    between = np.zeros((1, 40, N), np.float16)
    got = run_cuda(_kernel(17, gated=True), [*arrays, _workspace(), between], programs)
    np.testing.assert_allclose(got[2], expected, atol=5e-2, rtol=5e-3)
    assert got[4].any()


@needs_gxx
def test_the_products_of_a_model_are_those_of_its_kernels_for_processors(
    on_cpu: ctypes.CDLL, programs: Path, tmp_path: Path
) -> None:
    assert on_cpu
    (tmp_path / "config.json").write_text(json.dumps(TINY_LLAMA))
    compile_graph("q0f16", CUDA_TARGET, tmp_path)
    checked, between = set[str](), 0
    for variable, kernel in ir.load_module(tmp_path / "phase3.json").functions_items():
        name = str(variable.name_hint)
        form = name.partition("_cast")[1] + name.partition("_gated")[1]
        if "matmul" not in name or not isinstance(kernel, tirx.PrimFunc) or form in checked:
            continue
        made = schedule_cublas_product.with_shape(kernel, TARGET, {"fewest": 17})
        if made is None:
            continue
        checked.add(form)
        lifted = SCHEDULING.lift_workspace(made)[0]
        x, matrix, result, *wanted = (_random(buffer, rows=20) for buffer in lifted.params)
        between += len(wanted) - 1
        expected = run(kernel, [x, matrix, result])[-1].astype(np.float64)
        got = run_cuda(lifted, [x, matrix, result, *wanted], programs)[2].astype(np.float64)
        np.testing.assert_allclose(got, expected, atol=4e-3 * np.abs(expected).max(), err_msg=name)
    # Logits are stored in float32, halves without a launch of their own, and what a gate makes of two halves with one.
    assert (checked, between) == ({"", "_cast", "_cast_gated"}, 1)


def _random(buffer: tirx.Buffer, *, rows: int) -> Array:
    shape = [int(size) if isinstance(size, tirx.IntImm) else rows for size in buffer.shape]
    if str(buffer.dtype) == "uint8":
        return np.zeros(shape, np.uint8)
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(str(buffer.dtype))


@needs_gxx
def test_a_refusal_of_cublas_is_an_error_with_its_number(on_cpu: ctypes.CDLL, programs: Path) -> None:
    assert on_cpu
    arrays, _ = _product(41)
    small = _with_workspace(1024)
    with pytest.raises(RuntimeError, match="cuBLAS: cublasLtMatmulAlgoGetHeuristic answered status 15"):
        run_cuda(small, [*arrays, np.zeros(1024, np.uint8)], programs)


def _with_workspace(size: int) -> tirx.PrimFunc:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlcbuild.compiler.backends.cuda.libraries.cublas_interface.WORKSPACE_BYTES", size)
        return _kernel(17)


@needs_gxx
def test_without_cublas_where_the_model_runs_one_line_says_what_is_missing(tmp_path: Path) -> None:
    absent = "libcublasLt.so.99"
    library = dataclasses.replace(LIBRARY, source=LIBRARY.source.replace(LIBRARY.files[0], absent))
    library = dataclasses.replace(library, source=library.source.replace(LIBRARY.files[1], absent))
    compile_library.run(object=tmp_path / "calls.o", library=library)
    host = CUDA_TARGET["host"]
    product = _product_call(rows=2).with_attr("global_symbol", "kernel")
    tvm.tirx.build(tvm.IRModule({"kernel": product}), target=tvm.target.Target(host)).write_to_file(
        str(tmp_path / "kernel.o"), "o"
    )
    link_kernel.run(
        objects=[tmp_path / "kernel.o", tmp_path / "calls.o"],
        library=tmp_path / "kernel.so",
        target=host,
        backend=LINKING,
    )
    arrays, _ = _product(2)
    tensors = [tvm.runtime.tensor(array) for array in [*arrays, np.zeros(64, np.uint8)]]
    with pytest.raises(RuntimeError) as caught:
        tvm.runtime.load_module(str(tmp_path / "kernel.so"))["kernel"](*tensors)
    said = str(caught.value).strip()
    assert said.endswith(
        f"this model multiplies by cuBLAS, and the loader does not find {absent}: put its folder into LD_LIBRARY_PATH"
    )


def _product_call(rows: int) -> tirx.PrimFunc:
    """A kernel for the host that calls cuBLAS and does nothing else."""
    func = plain_product(N, K, rows, dtype="float16")
    workspace = tirx.decl_buffer((64,), "uint8", "workspace")
    x, matrix, output = func.params
    sizes = [tirx.const(size, "int64") for size in (rows, N, K)]
    call = tirx.Evaluate(tirx.call_cpacked(LIBRARY.functions[0], x, matrix, output, workspace, *sizes))
    return replace_body(tirx.PrimFunc([*func.params, workspace], func.body, func.ret_type, func.attrs), call)


@needs_gxx
def test_what_calls_cublas_is_the_same_wherever_it_is_compiled(tmp_path: Path) -> None:
    made = []
    for name in ("one", "another"):
        (tmp_path / name).mkdir()
        compile_library.run(object=tmp_path / name / "calls.o", library=LIBRARY)
        made.append((tmp_path / name / "calls.o").read_bytes())
    assert made[0] == made[1]


@pytest.mark.parametrize(
    "func",
    [
        packed_product(N, K, None, dtype="float16", out_dtype="float16"),
        plain_product(N, K, None, dtype="float32"),
        plain_product(N, K, 1, dtype="float16"),
        plain_product(N, K, 128, dtype="float16"),
        plain_product(N + 8, K, None, dtype="float16"),
    ],
    ids=["packed integers", "float32", "one vector", "a known number of vectors", "rows that are not of sixteen"],
)
def test_other_products_are_scheduled_as_without_cublas(func: tirx.PrimFunc) -> None:
    with TARGET:
        made, _ = apply_first_rule(func, TARGET, SCHEDULING.rules)
        plain, _ = apply_first_rule(func, TARGET, schedule.SCHEDULING.rules)
    assert not calls_cublas(made)
    assert tvm_ffi.structural_equal(made.body, plain.body)


def test_a_product_by_cublas_is_named_so() -> None:
    with TARGET:
        made, rule = apply_first_rule(plain_product(N, K, None, dtype="float16"), TARGET, SCHEDULING.rules)
        assert SCHEDULING.source(made, rule) == "cublas"
        other, rule = apply_first_rule(plain_product(N, K, 8, dtype="float16"), TARGET, SCHEDULING.rules)
        assert SCHEDULING.source(other, rule) == "cuda"


def test_records_choose_from_how_many_vectors_on_it_multiplies() -> None:
    func = plain_product(N, K, None, dtype="float16")
    shapes = schedule_cublas_product.candidates(func, TARGET)
    assert shapes[0] == {"fewest": 65}
    assert {shape["fewest"] for shape in shapes} == {17, 33, 65, 129, 257, 513, 1 << 30}
    with TARGET:
        chosen = ChosenShape(rule="cuda.cublas", shape={"fewest": 257})
        made, _ = apply_first_rule(func, TARGET, SCHEDULING.rules, chosen)
        other = ChosenShape(rule="cuda.matmul:3", shape={"vectors": 64, "stages": 4, "cluster": 1})
        default, _ = apply_first_rule(func, TARGET, SCHEDULING.rules, other)
    assert "rows < T.int64(257)" in made.script()
    assert "rows < T.int64(65)" in default.script()
