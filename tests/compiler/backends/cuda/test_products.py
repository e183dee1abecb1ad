"""Packed products on a GPU: the numbers of the scheduled kernel's own CUDA text, run on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import tile_product
from mlcbuild.compiler.backends.cuda.kernels.gemv import GemvShape, multiply_one, schedule_packed_gemv
from mlcbuild.compiler.backends.cuda.kernels.matmul import schedule_matmul
from mlcbuild.compiler.kernels.building import replace_body, statement
from mlcbuild.compiler.kernels.matmul_pattern import match_matrix_product
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET, run_cuda
from tests.compiler.kernel_running import packed_arrays, packed_product, plain_product, restored_matrix, silu_gated

TARGET = tvm.target.Target(CUDA_TARGET)
TARGET_90A = tvm.target.Target({**CUDA_TARGET, "arch": "sm_90a"})
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
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 1), (4, 1, 4), (8, 4, 1), (3, 1, 2)], ids=str)
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


@needs_gxx
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    ("n", "k", "rows"),
    [(64, 512, 1), (64, 512, 3), (40, 96, 8), (136, 256, 9), (160, 576, 16), (160, 576, 70), (8200, 32, 11)],
)
def test_a_packed_matrix_times_any_number_of_vectors_is_right(
    tmp_path: Path, n: int, k: int, rows: int, batch_first: bool
) -> None:
    func = packed_product(n, k, None, dtype="float16", residual=True, batch_first=batch_first)
    scheduled = schedule_matmul(func, TARGET)
    assert scheduled is not None
    x, words, scales = packed_arrays(n, k, rows, dtype="float16", bits=4, group=32)
    expected = x.astype(np.float64) @ restored_matrix(words, scales, bits=4, group=32).T
    other = np.random.default_rng(1).standard_normal(expected.shape).astype(np.float16)
    expected += other
    order = (1, 0, 2) if batch_first else (0, 1, 2)
    arrays = [x.transpose(order), words, scales, other.transpose(order), np.zeros(expected.shape, "float16")]
    arrays[-1] = arrays[-1].transpose(order)
    got = run_cuda(scheduled, arrays, tmp_path)[-1]
    # A weight is rounded to float16 as it is restored, and so is the result.
    np.testing.assert_allclose(got.transpose(order), expected, atol=2e-2, rtol=2e-3)


@needs_gxx
@pytest.mark.parametrize(("n", "k", "rows"), [(136, 128, 17), (128, 192, 64), (200, 64, 70)])
@pytest.mark.parametrize("batch_first", [False, True])
def test_warpgroups_multiply_tiles_right(tmp_path: Path, n: int, k: int, rows: int, batch_first: bool) -> None:
    """But for the instructions themselves, which `tests.gpu.parity` runs on a GPU."""
    func = packed_product(n, k, None, dtype="float16", residual=True, batch_first=batch_first)
    scheduled = schedule_matmul(func, TARGET_90A)
    assert scheduled is not None
    x, words, scales = packed_arrays(n, k, rows, dtype="float16", bits=4, group=32)
    expected = x.astype(np.float64) @ restored_matrix(words, scales, bits=4, group=32).T
    other = np.random.default_rng(1).standard_normal(expected.shape).astype(np.float16)
    expected += other
    order = (1, 0, 2) if batch_first else (0, 1, 2)
    arrays = [x.transpose(order), words, scales, other.transpose(order), np.zeros(expected.shape, "float16")]
    arrays[-1] = arrays[-1].transpose(order)
    got = run_cuda(scheduled, arrays, tmp_path)[-1]
    np.testing.assert_allclose(got.transpose(order), expected, atol=2e-2, rtol=2e-3)


@needs_gxx
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "halves"])
@pytest.mark.parametrize(
    ("n", "k", "rows", "target"),
    [
        (64, 512, 1, TARGET),
        (80, 96, 3, TARGET),
        (144, 256, 11, TARGET),
        (160, 576, 70, TARGET),
        (80, 128, 17, TARGET_90A),
        (272, 192, 70, TARGET_90A),
    ],
)
def test_both_halves_of_a_gated_product_meet(
    tmp_path: Path, n: int, k: int, rows: int, target: tvm.target.Target, packed: bool
) -> None:
    x, words, scales = packed_arrays(n, k, rows, dtype="float16", bits=4, group=32)
    matrix = restored_matrix(words, scales, bits=4, group=32)
    func = (packed_product if packed else plain_product)(n, k, None, dtype="float16", gated=True)
    scheduled = schedule_matmul(func, target)
    assert scheduled is not None
    stored = [words, scales] if packed else [matrix.astype(np.float16)]
    expected = silu_gated(x.astype(np.float64) @ matrix.T)
    got = run_cuda(scheduled, [x, *stored, np.zeros(expected.shape, "float16")], tmp_path)[-1]
    np.testing.assert_allclose(got, expected, atol=6e-2, rtol=4e-3)


@needs_gxx
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("vectors", "cluster"), [(64, 2), (64, 8), (128, 2), (256, 1)])
def test_each_block_of_a_cluster_stores_its_share(tmp_path: Path, vectors: int, cluster: int, gated: bool) -> None:
    n, k, rows = 144 if gated else 132, 512, 70
    func = packed_product(n, k, None, dtype="float16", out_dtype=None if gated else "float32", gated=gated)
    product = match_matrix_product(func, gated=gated)
    assert product is not None
    shape = tile_product.TileShape(vectors=vectors, cluster=cluster)
    func = replace_body(product.func, statement(lambda: tile_product.multiply_tiles(product, shape)))
    x, words, scales = packed_arrays(n, k, rows, dtype="float16", bits=4, group=32)
    expected = x.astype(np.float64) @ restored_matrix(words, scales, bits=4, group=32).T
    if gated:
        expected = silu_gated(expected)
    arrays = [x, words, scales, np.zeros(expected.shape, "float16" if gated else "float32")]
    (launch,) = cuda_emulation.launches(func, arrays)[1]
    assert launch.grid == (-(-rows // vectors), 2, cluster)
    got = run_cuda(func, arrays, tmp_path)[-1]
    # A gated result has the rounding of one half times the other half.
    np.testing.assert_allclose(got, expected, atol=0.3 if gated else 2e-2, rtol=4e-3 if gated else 2e-3)


@needs_gxx
@pytest.mark.parametrize("rows", [20, 70])
def test_a_tile_that_was_chosen_computes_the_same(tmp_path: Path, rows: int) -> None:
    n, k = 132, 512
    func = packed_product(n, k, None, dtype="float16", out_dtype="float32")
    kernel = schedule_matmul.with_shape(func, TARGET_90A, {"vectors": 128, "stages": 3, "cluster": 2})
    assert kernel is not None
    x, words, scales = packed_arrays(n, k, rows, dtype="float16", bits=4, group=32)
    expected = x.astype(np.float64) @ restored_matrix(words, scales, bits=4, group=32).T
    arrays = [x, words, scales, np.zeros(expected.shape, "float32")]
    assert [each.grid for each in cuda_emulation.launches(kernel, arrays)[1]] == [(1, 2, 2)]
    np.testing.assert_allclose(run_cuda(kernel, arrays, tmp_path)[-1], expected, atol=2e-2, rtol=2e-3)


@pytest.mark.parametrize(
    ("n", "k", "expected"),
    [
        (4096, 4096, [(64, 64, 4), (128, 64, 2), (256, 128, 2), (512, 256, 2), (None, 256, 1)]),
        (4096, 14336, [(64, 64, 8), (128, 64, 2), (256, 128, 2), (512, 256, 2), (None, 256, 1)]),
        (28672, 4096, [(64, 64, 1), (128, 128, 1), (None, 256, 1)]),
        (576, 576, [(64, 64, 1), (128, 64, 1), (3328, 128, 1), (None, 256, 1)]),
    ],
)
def test_blocks_share_rows_where_there_are_few(n: int, k: int, expected: list[tuple[int | None, int, int]]) -> None:
    assert [(most, shape.vectors, shape.cluster) for most, shape in tile_product.shapes(n, k)] == expected


@pytest.mark.parametrize(
    ("vectors", "stages", "cluster"), [(96, 4, 1), (64, 2, 1), (64, 4, 3)], ids=["vectors", "stages", "cluster"]
)
def test_a_shape_of_a_tile_that_is_none_is_refused(vectors: int, stages: int, cluster: int) -> None:
    with pytest.raises(ValueError, match="no shape of a tile"):
        tile_product.TileShape(vectors=vectors, stages=stages, cluster=cluster)


@needs_gxx
@pytest.mark.parametrize(
    ("n", "k", "rows", "target"),
    [(64, 512, 1, TARGET), (72, 96, 3, TARGET), (160, 576, 70, TARGET), (136, 192, 70, TARGET_90A)],
    ids=["one", "few", "many", "many, by warpgroups"],
)
def test_a_matrix_of_halves_times_any_number_of_vectors_is_right(
    tmp_path: Path, n: int, k: int, rows: int, target: tvm.target.Target
) -> None:
    scheduled = schedule_matmul(plain_product(n, k, None, dtype="float16"), target)
    assert scheduled is not None
    random = np.random.default_rng(0)
    x = random.standard_normal((1, rows, k)).astype(np.float16)
    matrix = random.standard_normal((n, k)).astype(np.float16)
    got = run_cuda(scheduled, [x, matrix, np.zeros((1, rows, n), np.float16)], tmp_path)[-1]
    np.testing.assert_allclose(got, x.astype(np.float64) @ matrix.T.astype(np.float64), atol=4e-2, rtol=1e-3)


@needs_gxx
def test_a_matrix_of_halves_times_one_vector_is_right(tmp_path: Path) -> None:
    scheduled = schedule_matmul(plain_product(48, 160, 1, dtype="float16"), TARGET)
    assert scheduled is not None
    random = np.random.default_rng(0)
    x, matrix = (random.standard_normal(shape).astype(np.float16) for shape in ((1, 1, 160), (48, 160)))
    got = run_cuda(scheduled, [x, matrix, np.zeros((1, 1, 48), np.float16)], tmp_path)[-1]
    np.testing.assert_allclose(got, x.astype(np.float64) @ matrix.T.astype(np.float64), atol=4e-2, rtol=1e-3)


def test_the_number_of_vectors_chooses_the_kernel(tmp_path: Path) -> None:
    """Ways of their own for one vector, a few, and many; the host decides."""
    scheduled = schedule_matmul(packed_product(64, 256, None, dtype="float16", out_dtype="float32"), TARGET)
    assert scheduled is not None
    started = []
    for rows in (1, 2, 8, 9, 16, 17, 65):
        arrays = [
            *packed_arrays(64, 256, rows, dtype="float16", bits=4, group=32),
            np.zeros((1, rows, 64), np.float32),
        ]
        (launch,) = cuda_emulation.launches(scheduled, arrays)[1]
        started.append((launch.function, launch.grid))
    one, two, eight, nine, sixteen, seventeen, more = started
    assert (two, nine) == (eight, sixteen)
    assert len({one[0], two[0], nine[0], more[0]}) == 4
    assert (seventeen[0], seventeen[1], more[1]) == (more[0], (1, 1, 1), (1, 2, 1))


@pytest.mark.parametrize(
    ("func", "arch"),
    [
        (packed_product(16, 96, None, dtype="float32"), "sm_90"),
        (packed_product(16, 96, None, dtype="float16"), "sm_75"),
        (plain_product(16, 80, None, dtype="float16"), "sm_90"),
    ],
    ids=["float32", "an old architecture", "rows that are no whole groups"],
)
def test_tensor_cores_are_left_alone_where_they_do_not_fit(func: tirx.PrimFunc, arch: str) -> None:
    assert schedule_matmul(func, tvm.target.Target(CUDA_TARGET | {"arch": arch})) is None


def test_the_product_with_one_vector_needs_an_architecture_with_its_tensor_core_instruction() -> None:
    func = packed_product(16, 128, 1, dtype="float16")
    assert schedule_packed_gemv(func, tvm.target.Target(CUDA_TARGET | {"arch": "sm_75"})) is None
    assert schedule_packed_gemv(func, tvm.target.Target(CUDA_TARGET | {"arch": "sm_80"})) is not None
