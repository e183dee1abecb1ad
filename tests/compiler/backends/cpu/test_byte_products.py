"""Products of signed bytes on a CPU: the same integers as NumPy's, in whatever instructions a processor has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from mlcbuild.compiler.backends.cpu.kernels import byte_product
from mlcbuild.compiler.backends.cpu.kernels.byte_product import schedule_byte_product
from mlcbuild.compiler.quantization.int8.reader import integer_product
from tests.compiler.kernel_running import Array, compiled, packed_product, run, scheduled


def _kernel(n: int, k: int, rows: int | None, *, residual: bool = False) -> tirx.PrimFunc:
    """Rows and their scales, a matrix and its scales → products, and a residual is added to them."""
    count: Any = te.var("rows", "int64") if rows is None else rows
    x = te.placeholder((1, count, k), "int8", "x")
    of_rows = te.placeholder((1, count, 1), "float32", "of_rows")
    matrix = te.placeholder((n, k), "int8", "matrix")
    scales = te.placeholder((n, 1), "float32", "scales")
    product = integer_product(x, of_rows, matrix, scales, dtype="float32")
    more = [te.placeholder((1, count, n), "float32", "residual")] if residual else []
    made = te.compute(product.shape, lambda *at: product[at] + more[0][at], name="add") if residual else product
    return te.create_prim_func([x, of_rows, matrix, scales, *more, made])


def _arrays(n: int, k: int, rows: int, *, residual: bool = False) -> tuple[list[Array], Array]:
    """The arguments, and what comes of them. Some rows have the extremes."""
    random = np.random.default_rng(n * k + rows)
    x, matrix = (random.integers(-127, 128, size).astype(np.int8) for size in ((1, rows, k), (n, k)))
    x[0, 0], matrix[0], matrix[-1] = -127, 127, -127
    of_rows, scales = (np.exp2(random.integers(-9, 1, size)).astype(np.float32) for size in ((1, rows, 1), (n, 1)))
    sums = x[0].astype(np.int64) @ matrix.astype(np.int64).T
    expected = sums.astype(np.float32)[np.newaxis] * (of_rows * scales[:, 0])
    more = [random.standard_normal(expected.shape).astype(np.float32)] if residual else []
    arrays = [x, of_rows, matrix, scales, *more, np.zeros(expected.shape, np.float32)]
    return arrays, expected + more[0] if residual else expected


@pytest.mark.parametrize(("n", "k"), [(8, 64), (5, 8), (24, 40), (16, 96), (40, 320)])
@pytest.mark.parametrize("residual", [False, True])
def test_products_are_exact(n: int, k: int, residual: bool) -> None:
    for rows in (None, 1):
        kernel = compiled(scheduled(schedule_byte_product, _kernel(n, k, rows, residual=residual)))
        for count in (1, 3, 4, 9) if rows is None else (1,):
            arrays, expected = _arrays(n, k, count, residual=residual)
            np.testing.assert_array_equal(run(kernel, arrays)[-1], expected)


def test_a_matrix_of_many_rows_is_shared_by_threads() -> None:
    arrays, expected = _arrays(512, 256, 6)
    kernel = scheduled(schedule_byte_product, _kernel(512, 256, None))
    assert "T.parallel" in kernel.script()
    np.testing.assert_array_equal(run(kernel, arrays)[-1], expected)


@pytest.mark.parametrize(
    ("target", "intrinsic"),
    [
        ({"mcpu": "x86-64-v3"}, "llvm.x86.avx2.pmadd.wd"),
        ({"mcpu": "x86-64-v4"}, "llvm.x86.avx512.pmaddw.d.512"),
        ({"mcpu": "x86-64-v4", "mattr": ["+avx512vnni"]}, "llvm.x86.avx512.vpdpbusd.512"),
        ({"mcpu": "icelake-server"}, "llvm.x86.avx512.vpdpbusd.512"),
        ({"mcpu": "x86-64-v2"}, ""),
        ({"mcpu": "neoverse-n1", "mtriple": "aarch64-linux-gnu"}, ""),
    ],
)
def test_instructions_are_those_of_the_target(target: dict[str, Any], intrinsic: str) -> None:
    made = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu"} | target)
    kernel = schedule_byte_product(_kernel(16, 128, None), made)
    assert kernel is not None
    code = tvm.tirx.build(_module(kernel), target=made).inspect_source("ll")
    assert intrinsic in code
    assert bool(intrinsic) == ("llvm.x86" in code)


@pytest.mark.parametrize("dot", byte_product._DOTS, ids=lambda dot: dot.feature or "plain")
def test_all_instructions_that_this_processor_has_give_the_same(dot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "").replace("avx512_vnni", "avx512vnni").split()
    if dot.feature and dot.feature not in flags:
        pytest.skip(f"this processor has no {dot.feature}")
    monkeypatch.setattr(byte_product, "_DOTS", (dot,))
    target = tvm.target.Target(
        {"kind": "llvm", "mcpu": "x86-64-v4" if "avx512" in dot.feature else "x86-64-v3", "mtriple": "x86_64-linux-gnu"}
        | ({"mattr": ["+avx512vnni"]} if dot.adds else {})
    )
    kernel = schedule_byte_product(_kernel(24, 192, None), target)
    assert kernel is not None
    made = tvm.tirx.build(_module(kernel), target=target)["kernel"]
    for rows in (1, 6):
        arrays, expected = _arrays(24, 192, rows)
        np.testing.assert_array_equal(run(made, arrays)[-1], expected)


def test_other_products_are_left_alone() -> None:
    target = tvm.target.Target("llvm")
    assert schedule_byte_product(packed_product(8, 64, None), target) is None
    assert schedule_byte_product(_kernel(8, 12, None), target) is None


def _module(kernel: tirx.PrimFunc) -> tvm.IRModule:
    return tvm.IRModule({"kernel": kernel.with_attr("global_symbol", "kernel")})
