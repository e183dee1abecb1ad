"""Quantizations that no kernel of ours is for are computed on a GPU by TVM's schedules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import run_cuda
from tests.compiler.backends.cuda.model_kernels import compare_kernels, scheduled
from tests.compiler.kernel_running import packed_arrays, packed_product, restored_matrix

pytestmark = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")


@pytest.mark.parametrize("rows", [1, None])
@pytest.mark.parametrize(
    ("bits", "group", "by_columns"), [(3, 40, False), (3, 40, True), (4, 32, True), (8, 32, False)], ids=str
)
def test_products_are_right(tmp_path: Path, bits: int, group: int, by_columns: bool, rows: int | None) -> None:
    n, k, count = 48, 192, rows or 5
    func = packed_product(
        n, k, rows, dtype="float16", out_dtype="float32", bits=bits, group=group, by_columns=by_columns
    )
    x, words, scales = packed_arrays(n, k, count, dtype="float16", bits=bits, group=group)
    expected = x.astype(np.float64) @ restored_matrix(words, scales, bits=bits, group=group)[:, :k].T
    stored = [words.T, scales.T] if by_columns else [words, scales]
    found = run_cuda(scheduled(func), [x, *stored, np.zeros(expected.shape, "float32")], tmp_path)[-1]
    # A weight is rounded to float16 as it is restored.
    np.testing.assert_allclose(found, expected, atol=2.0**-11 * np.abs(expected).max() * 2)


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
    ],
)
def test_what_reads_stored_matrices_says_the_same_on_a_gpu_and_on_a_cpu(
    tmp_path: Path, quantization: str, dtype: str
) -> None:
    tolerance = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-20}[dtype]
    found = compare_kernels(quantization, tmp_path, dtype=dtype, tolerance=tolerance, checked=set(), only="dequantize")
    assert found >= 8
