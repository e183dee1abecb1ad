"""Schedules of matrix products: right on odd shapes, and absent where they do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import te, tirx

from mlcbuild.compiler.backends.cpu.kernels import gemv, matmul
from mlcbuild.compiler.backends.cpu.kernels.gemv import schedule_gemv
from mlcbuild.compiler.backends.cpu.kernels.matmul import schedule_matmul
from mlcbuild.compiler.backends.cpu.kernels.registers import register_lanes
from mlcbuild.compiler.kernels.matmul_pattern import PackedMatrix, match_matrix_product
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler.kernel_running import (
    TARGET,
    Array,
    compiled,
    packed_arrays,
    packed_product,
    plain_product,
    restored_matrix,
    run,
    scheduled,
)

_ROUNDING = {
    "float32": 3e-7,
    "float16": 6e-4,
    "bfloat16": 5e-3,
}  # of the largest result


def _close(found: Array, expected: Array, dtype: str, *, terms: float = 0.0) -> None:
    """`terms` is the largest sum of the absolute values that a result adds up: they may cancel."""
    atol = _ROUNDING[dtype] * np.abs(expected).max() * 2 + _ROUNDING["float32"] * terms
    np.testing.assert_allclose(found.astype(np.float64), expected, atol=atol)


def _check_packed(
    kernel: Any,
    n: int,
    k: int,
    rows: int,
    dtype: str,
    bits: int,
    group: int,
    residual: bool,
    *,
    by_columns: bool = False,
) -> None:
    x, words, scales = packed_arrays(n, k, rows, dtype=dtype, bits=bits, group=group)
    restored = restored_matrix(words, scales, bits=bits, group=group)[:, :k].T
    expected = x.astype(np.float64) @ restored
    terms = float((np.abs(x).astype(np.float64) @ np.abs(restored)).max())
    arrays = [x, words.T, scales.T] if by_columns else [x, words, scales]
    if residual:
        arrays.append(np.random.default_rng(1).standard_normal(expected.shape).astype(dtype_of(dtype)))
        expected = expected + arrays[-1].astype(np.float64)
    found = run(kernel, [*arrays, np.zeros(expected.shape, dtype_of(dtype))])
    _close(found[-1], expected, dtype, terms=terms)


def _with_registers(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Processors with registers of eight floats compute with sixteen too, in two of them."""
    for rule in (gemv, matmul):
        monkeypatch.setattr(rule, "register_lanes", lambda _target: count)


@pytest.fixture(params=[8, 16])
def floats_of_a_register(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    _with_registers(monkeypatch, request.param)
    return int(request.param)


@settings(max_examples=16, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    n=st.integers(1, 40),
    groups=st.integers(1, 9),
    scheme=st.sampled_from([(4, 32), (4, 64), (4, 128), (8, 32), (2, 64), (3, 40)]),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    residual=st.booleans(),
    registers=st.sampled_from([8, 16]),
)
def test_a_packed_matrix_times_one_vector(
    n: int, groups: int, scheme: tuple[int, int], dtype: str, residual: bool, registers: int
) -> None:
    bits, group = scheme
    k = max(groups, 2) * group  # one group alone has no index that divides
    func = packed_product(n, k, 1, dtype=dtype, bits=bits, group=group, residual=residual)
    with pytest.MonkeyPatch.context() as monkeypatch:
        _with_registers(monkeypatch, registers)
        kernel = schedule_gemv(func, TARGET)
        if kernel is None:
            # Blocks of words do not nest with the groups: then the other schedule has to fit.
            kernel = schedule_matmul(func, TARGET)
    assert kernel is not None or k % 8
    if kernel is not None:
        _check_packed(kernel, n, k, 1, dtype, bits, group, residual)


@pytest.mark.usefixtures("floats_of_a_register")
@pytest.mark.parametrize(("n", "k"), [(3072, 576), (576, 1536), (7, 688 // 32 * 32), (960, 96)])
def test_the_shapes_of_models_multiply_without_unpacking(n: int, k: int) -> None:
    _check_packed(scheduled(schedule_gemv, packed_product(n, k, 1)), n, k, 1, "float32", 4, 32, False)


@pytest.mark.usefixtures("floats_of_a_register")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("n", "k"), [(24, 576), (7, 96), (12, 64), (2, 1536)])
@pytest.mark.parametrize("batch_first", [False, True])
def test_a_packed_matrix_times_any_number_of_vectors(dtype: str, n: int, k: int, batch_first: bool) -> None:
    func = packed_product(n, k, None, dtype=dtype, residual=True, batch_first=batch_first)
    kernel = compiled(scheduled(schedule_matmul, func))
    for rows in (1, 2, 4, 7, 33):
        x, words, scales = packed_arrays(n, k, rows, dtype=dtype, bits=4, group=32)
        other = np.random.default_rng(1).standard_normal((1, rows, n)).astype(dtype_of(dtype))
        expected = x.astype(np.float64) @ restored_matrix(words, scales, bits=4, group=32).T + other.astype(np.float64)
        arrays = [x, words, scales, other, np.zeros_like(other)]
        if batch_first:
            for index in (0, 3, 4):
                arrays[index] = arrays[index].transpose(1, 0, 2)
            expected = expected.transpose(1, 0, 2)
        _close(run(kernel, arrays)[-1], expected, dtype)


@pytest.mark.parametrize(("bits", "group"), [(8, 32), (4, 128), (3, 40), (2, 32)])
@pytest.mark.parametrize("rows", [None, 5, 8])
def test_other_packings_times_several_vectors(bits: int, group: int, rows: int | None) -> None:
    k = 8 * group
    kernel = scheduled(schedule_matmul, packed_product(12, k, rows, bits=bits, group=group))
    _check_packed(kernel, 12, k, rows or 6, "float32", bits, group, False)


@pytest.mark.parametrize(("n", "k", "bits", "group"), [(48, 192, 4, 32), (20, 192, 3, 40), (7, 96, 8, 32)])
@pytest.mark.parametrize(("dtype", "residual"), [("float32", False), ("float16", True), ("bfloat16", False)])
def test_a_matrix_packed_by_columns_times_any_number_of_vectors(
    n: int, k: int, bits: int, group: int, dtype: str, residual: bool
) -> None:
    for rows in (1, None):
        func = packed_product(n, k, rows, dtype=dtype, bits=bits, group=group, residual=residual, by_columns=True)
        assert schedule_gemv(func, TARGET) is None
        kernel = compiled(scheduled(schedule_matmul, func))
        for count in (1,) if rows else (1, 4, 7):
            _check_packed(kernel, n, k, count, dtype, bits, group, residual, by_columns=True)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("k", [192, 88, 416])
def test_the_last_group_of_a_row_may_be_short(dtype: str, k: int) -> None:
    for rows in (1, None):
        func = packed_product(12, k, rows, dtype=dtype, bits=3, group=40)
        assert schedule_gemv(func, TARGET) is None
        kernel = compiled(scheduled(schedule_matmul, func))
        for count in (1,) if rows else (1, 6):
            _check_packed(kernel, 12, k, count, dtype, 3, 40, False)


@pytest.mark.usefixtures("floats_of_a_register")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, None, 6])
@pytest.mark.parametrize(("n", "k"), [(16, 576), (5, 72)])
def test_a_matrix_as_it_is_times_vectors(dtype: str, rows: int | None, n: int, k: int) -> None:
    kernel = scheduled(schedule_matmul, plain_product(n, k, rows, dtype=dtype))
    random = np.random.default_rng(0)
    x, matrix = (random.standard_normal(shape).astype(dtype_of(dtype)) for shape in ((1, rows or 9, k), (n, k)))
    expected = x.astype(np.float64) @ matrix.astype(np.float64).T
    _close(run(kernel, [x, matrix, np.zeros(expected.shape, dtype_of(dtype))])[-1], expected, dtype)


def test_narrow_floats_are_summed_in_float32() -> None:
    """2048 + 1 is 2048 in float16: a sum kept in float16 would stop there."""
    k = 4096
    kernel = scheduled(schedule_matmul, plain_product(1, k, 1, dtype="float16"))
    ones = np.ones((1, 1, k), np.float16)
    found = run(kernel, [ones, np.ones((1, k), np.float16), np.zeros((1, 1, 1), np.float16)])
    assert found[-1].item() == k


def test_the_result_may_be_wider_than_what_is_multiplied() -> None:
    func = packed_product(8, 64, 1, dtype="float16", out_dtype="float32")
    x, words, scales = packed_arrays(8, 64, 1, dtype="float16", bits=4, group=32)
    expected = x.astype(np.float64) @ restored_matrix(words, scales, bits=4, group=32).T
    found = run(scheduled(schedule_gemv, func), [x, words, scales, np.zeros((1, 1, 8), np.float32)])
    _close(found[-1], expected, "float32")


def test_the_pattern_is_read_off() -> None:
    product = match_matrix_product(packed_product(10, 96, None, residual=True))
    assert product is not None
    assert isinstance(product.matrix, PackedMatrix)
    assert (product.n, product.k, product.matrix.bits, product.matrix.per_word) == (10, 96, 4, 8)
    assert (product.matrix.group, product.matrix.offset) == (32, 7.0)
    assert product.epilogue is not None


def _product_of_sums(n: int, k: int) -> tirx.PrimFunc:
    """(x + 1) times a matrix: x itself is not what is multiplied."""
    x, matrix = te.placeholder((1, k), "float32"), te.placeholder((n, k), "float32")
    axis = te.reduce_axis((0, k))
    more = te.compute((1, k), lambda i, j: x[i, j] + 1)
    return te.create_prim_func(
        [x, matrix, te.compute((1, n), lambda i, j: te.sum(more[i, axis] * matrix[j, axis], axis))]
    )


def _epilogue_across(n: int, k: int) -> tirx.PrimFunc:
    """The halves of the result are multiplied: an element needs two of the product."""
    x, matrix = te.placeholder((1, 1, k), "float32"), te.placeholder((n, k), "float32")
    axis = te.reduce_axis((0, k))
    product = te.compute((1, 1, n), lambda a, b, j: te.sum(x[a, b, axis] * matrix[j, axis], axis))
    halves = te.compute((1, 1, n // 2), lambda a, b, j: product[a, b, j] * product[a, b, j + n // 2])
    return te.create_prim_func([x, matrix, halves])


def _integers(n: int, k: int) -> tirx.PrimFunc:
    x, matrix = te.placeholder((1, k), "int32"), te.placeholder((n, k), "int32")
    axis = te.reduce_axis((0, k))
    return te.create_prim_func([x, matrix, te.compute((1, n), lambda i, j: te.sum(x[i, axis] * matrix[j, axis], axis))])


def _elementwise() -> tirx.PrimFunc:
    x = te.placeholder((8, 8), "float32")
    return te.create_prim_func([x, te.compute((8, 8), lambda i, j: x[i, j] + 1)])


@pytest.mark.parametrize(
    "func",
    [_product_of_sums(8, 16), _epilogue_across(8, 16), _integers(8, 16), _elementwise(), plain_product(8, 12, 1)],
    ids=["sums", "across", "integers", "elementwise", "part of a vector"],
)
def test_what_is_no_product_of_this_kind_is_left_to_others(func: tirx.PrimFunc) -> None:
    assert schedule_gemv(func, TARGET) is None
    assert schedule_matmul(func, TARGET) is None


def test_one_vector_alone_is_for_the_unpacked_way() -> None:
    assert schedule_gemv(packed_product(8, 64, 2), TARGET) is None
    assert schedule_gemv(packed_product(8, 64, None), TARGET) is None
    assert schedule_gemv(plain_product(8, 64, 1), TARGET) is None


@pytest.mark.parametrize(
    ("processor", "triple", "count"),
    [
        ("x86-64-v2", "x86_64-linux-gnu", 8),
        ("x86-64-v3", "x86_64-linux-gnu", 8),
        ("x86-64-v4", "x86_64-linux-gnu", 16),
        ("znver5", "x86_64-linux-gnu", 16),
        ("neoverse-n1", "aarch64-linux-gnu", 8),
    ],
)
def test_registers_are_those_of_the_target(processor: str, triple: str, count: int) -> None:
    target = tvm.target.Target({"kind": "llvm", "mcpu": processor, "mtriple": triple})
    assert register_lanes(target) == count


def test_a_product_of_several_vectors_is_the_same_to_the_bit_however_many_there_are(floats_of_a_register: int) -> None:
    kernel = compiled(scheduled(schedule_matmul, packed_product(24, 576, None, dtype="float16")))
    x, words, scales = packed_arrays(24, 576, 37, dtype="float16", bits=4, group=32)
    whole = run(kernel, [x, words, scales, np.zeros((1, 37, 24), np.float16)])[-1]
    for first, count in ((0, 2), (3, 4), (5, 7), (30, 7)):
        part = x[:, first : first + count]
        found = run(kernel, [part, words, scales, np.zeros((1, count, 24), np.float16)])[-1]
        np.testing.assert_array_equal(found, whole[:, first : first + count], err_msg=str(floats_of_a_register))
