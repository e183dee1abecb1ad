"""Packed products on a GPU: the numbers of the scheduled kernel's own CUDA text, run on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import tirx

from mlcbuild.compiler.kernels.building import replace_body, statement
from mlcbuild.compiler.kernels.gpu.gemv import GemvShape, multiply_one, schedule_packed_gemv
from mlcbuild.compiler.kernels.matmul_pattern import match_matrix_product
from tests.compiler import cuda_emulation
from tests.compiler.cuda_emulation import CUDA_TARGET, run_cuda
from tests.compiler.kernel_running import packed_arrays, packed_product, restored_matrix

TARGET = tvm.target.Target(CUDA_TARGET)
needs_gxx = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")


def _check(func: tirx.PrimFunc | None, n: int, k: int, directory: Path, *, residual: bool = False) -> None:
    assert func is not None
    arrays = packed_arrays(n, k, 1, dtype="float16", bits=4, group=32)
    expected = arrays[0].astype(np.float64) @ restored_matrix(arrays[1], arrays[2], bits=4, group=32).T
    kind = "float16" if residual else "float32"
    if residual:
        other = np.random.default_rng(1).standard_normal(expected.shape).astype(np.float16)
        arrays.append(other)
        expected = expected + other
    got = run_cuda(func, [*arrays, np.zeros(expected.shape, kind)], directory)[-1]
    # Every product is exact, and sums are of float32.
    np.testing.assert_allclose(got, expected, atol=1e-5, rtol=1e-3 if residual else 1e-5)


@needs_gxx
@pytest.mark.parametrize(("n", "k"), [(64, 512), (40, 576), (1, 64), (17, 2048), (16, 1088)])
def test_a_packed_matrix_times_a_vector_is_right_on_odd_sizes(tmp_path: Path, n: int, k: int) -> None:
    func = packed_product(n, k, 1, dtype="float16", out_dtype="float32")
    _check(schedule_packed_gemv(func, TARGET), n, k, tmp_path)


@needs_gxx
def test_what_follows_the_product_is_done_with_it(tmp_path: Path) -> None:
    func = packed_product(48, 320, 1, dtype="float16", residual=True)
    _check(schedule_packed_gemv(func, TARGET), 48, 320, tmp_path, residual=True)


@needs_gxx
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 1), (4, 1, 4), (8, 2, 2), (3, 1, 2)], ids=str)
def test_every_way_to_share_the_work_gives_the_same(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    warps, tiles, ahead = shape
    product = match_matrix_product(packed_product(80, 1536, 1, dtype="float16", out_dtype="float32"))
    assert product is not None
    way = GemvShape(warps=warps, tiles=tiles, ahead=ahead)
    func = replace_body(product.func, statement(lambda: multiply_one(product, way)))
    _check(func, 80, 1536, tmp_path)


@pytest.mark.parametrize(
    "func",
    [
        packed_product(16, 96, 1, dtype="float16", out_dtype="float32"),
        packed_product(16, 128, 1, dtype="float32"),
        packed_product(16, 160, 1, dtype="float16", out_dtype="float32", bits=3, group=40),
        packed_product(16, 128, 1, dtype="float16", out_dtype="float32", group=64),
        packed_product(16, 128, 2, dtype="float16", out_dtype="float32"),
    ],
    ids=["odd number of groups", "float32", "three bits", "other groups", "two vectors"],
)
def test_other_products_are_left_to_other_rules(func: tirx.PrimFunc) -> None:
    assert schedule_packed_gemv(func, TARGET) is None


def test_a_way_to_share_the_work_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="warps=0"):
        GemvShape(warps=0)
