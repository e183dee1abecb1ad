"""Products of matrices that are neither halves nor integers of four bits by rows, on a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import run_cuda
from tests.compiler.backends.cuda.model_kernels import compare_kernels, scheduled
from tests.compiler.kernel_running import (
    float8_product,
    packed_arrays,
    packed_product,
    plain_product,
    restored_matrix,
    silu_gated,
)

pytestmark = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")


@pytest.mark.parametrize(
    ("architecture", "rows", "known", "gated"),
    [
        ("sm_80", 1, True, False),
        ("sm_80", 5, False, True),
        ("sm_80", 20, False, False),
        ("sm_90a", 70, False, True),
    ],
    ids=["one", "few", "many", "by warpgroups"],
)
@pytest.mark.parametrize(
    ("bits", "group", "by_columns"),
    [(3, 40, False), (3, 40, True), (4, 32, True), (4, 128, False), (8, 32, False), (8, 32, True)],
    ids=str,
)
def test_products_are_right(
    tmp_path: Path, bits: int, group: int, by_columns: bool, architecture: str, rows: int, known: bool, gated: bool
) -> None:
    n, k = 144, 256
    func = packed_product(
        n,
        k,
        rows if known else None,
        dtype="float16",
        out_dtype=None if gated else "float32",
        bits=bits,
        group=group,
        by_columns=by_columns,
        gated=gated,
    )
    x, words, scales = packed_arrays(n, k, rows, dtype="float16", bits=bits, group=group)
    expected = x.astype(np.float64) @ restored_matrix(words, scales, bits=bits, group=group)[:, :k].T
    # A weight is rounded to float16 as it is restored.
    tolerance = 2.0**-11 * np.abs(expected).max() * 2
    if gated:
        tolerance *= 4 * np.abs(expected).max()
        expected = silu_gated(expected)
    stored = [words.T, scales.T] if by_columns else [words, scales]
    arrays = [x, *stored, np.zeros(expected.shape, "float16" if gated else "float32")]
    found = run_cuda(scheduled(func, architecture), arrays, tmp_path)[-1]
    np.testing.assert_allclose(found, expected, atol=tolerance)


@pytest.mark.parametrize(("architecture", "rows"), [("sm_80", 1), ("sm_80", 5), ("sm_80", 20), ("sm_90a", 70)], ids=str)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "stored"])
def test_products_in_bfloat16_are_right(tmp_path: Path, packed: bool, architecture: str, rows: int) -> None:
    n, k = 144, 192
    x, words, scales = packed_arrays(n, k, rows, dtype="bfloat16", bits=4, group=32)
    matrix = restored_matrix(words, scales, bits=4, group=32)
    func = (packed_product if packed else plain_product)(n, k, None, dtype="bfloat16", gated=True)
    expected = silu_gated(x.astype(np.float64) @ matrix.T)
    stored = [words, scales] if packed else [matrix.astype(x.dtype)]
    arrays = [x, *stored, np.zeros(expected.shape, x.dtype)]
    found = run_cuda(scheduled(func, architecture), arrays, tmp_path)[-1].astype(np.float64)
    np.testing.assert_allclose(found, expected, atol=2.0**-6 * np.abs(expected).max())


@pytest.mark.parametrize("rows", [1, 2])
def test_floats_of_eight_bits_are_right(tmp_path: Path, rows: int) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((1, rows, 256)).astype(np.float16)
    stored = random.integers(0, 60, (64, 256), dtype=np.uint8)
    expected = x.astype(np.float64) @ (stored.astype(np.uint16) << 8).view(np.float16).astype(np.float64).T
    found = run_cuda(
        scheduled(float8_product(64, 256, rows)), [x, stored, np.zeros((1, rows, 64), "float16")], tmp_path
    )
    np.testing.assert_allclose(found[-1], expected, rtol=2e-3, atol=2e-2)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [
        ("q3f16_0", "float16"),
        ("q3f16_1", "float16"),
        ("q4f16_0", "float16"),
        ("q4bf16_0", "bfloat16"),
        ("q4f16_2", "float16"),
        ("q8f16_1", "float16"),
        ("q8f32_1", "float32"),
        ("q4f16_autoawq", "float16"),
        ("q4f16_ft", "float16"),
        ("q8f16_ft", "float16"),
        ("q8_0_f16", "float16"),
        ("q4_k_f16", "float16"),
        ("e4m3_e4m3_f16", "float16"),
        ("fp8_e4m3fn_bf16_block_scale", "bfloat16"),
        ("mxfp4_bf16", "bfloat16"),
        ("nvfp4_bf16", "bfloat16"),
    ],
)
def test_what_reads_stored_matrices_says_the_same_on_a_gpu_and_on_a_cpu(
    tmp_path: Path, quantization: str, dtype: str
) -> None:
    tolerance = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-20}[dtype]
    found = compare_kernels(quantization, tmp_path, dtype=dtype, tolerance=tolerance, checked=set(), only="dequantize")
    assert found >= 8
