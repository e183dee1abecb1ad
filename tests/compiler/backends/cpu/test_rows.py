"""Schedules of norms, softmax and element-wise kernels, and the exponentials that they use."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tvm.tirx.script.builder as T  # noqa: N812
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import te, tirx, topi
from tvm.script.ir_builder import IRBuilder

from mlcbuild.compiler.backends.cpu.kernels.rows import schedule_rows
from mlcbuild.compiler.kernels.building import exp, exp2, lanes, loop, store
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler.kernel_running import TARGET, Array, compiled, run, scheduled


def _rows(count: int | None) -> Any:
    return tirx.Var("rows", "int64") if count is None else count


def _norm(rows: int | None, columns: int, dtype: str = "float32") -> tirx.PrimFunc:
    x = te.placeholder((_rows(rows), 1, columns), dtype, name="x")
    weight = te.placeholder((columns,), dtype, name="weight")
    return te.create_prim_func([x, weight, topi.nn.rms_norm(x, weight, [-1], 1e-5)])


def _softmax(rows: int | None, columns: int) -> tirx.PrimFunc:
    x = te.placeholder((_rows(rows), columns), "float32", name="x")
    return te.create_prim_func([x, topi.nn.softmax(x, axis=-1)])


def _gate(rows: int | None, columns: int, dtype: str = "float32") -> tirx.PrimFunc:
    """silu of the first half of each row, times the second."""
    x = te.placeholder((1, _rows(rows), 2 * columns), dtype, name="x")
    sigmoid = te.compute((1, x.shape[1], columns), lambda a, b, c: te.sigmoid(x[a, b, c]))
    product = te.compute((1, x.shape[1], columns), lambda a, b, c: x[a, b, c] * sigmoid[a, b, c] * x[a, b, c + columns])
    return te.create_prim_func([x, product])


def _random(*shape: int, dtype: str = "float32") -> Array:
    array: Array = np.random.default_rng(0).standard_normal(shape).astype(dtype_of(dtype))
    return array


@pytest.mark.parametrize("columns", [576, 13, 5, 64])
@pytest.mark.parametrize("rows", [None, 1, 3])
def test_rms_norm(rows: int | None, columns: int) -> None:
    kernel = compiled(scheduled(schedule_rows, _norm(rows, columns)))
    for count in [rows] if rows else [1, 2, 33]:
        x, weight = _random(count, 1, columns) * 3, _random(columns)
        expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=-1, keepdims=True) + 1e-5) * weight
        found = run(kernel, [x, weight, np.zeros_like(x)])[-1]
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_rms_norm_of_narrow_floats(dtype: str, tolerance: float) -> None:
    kernel = scheduled(schedule_rows, _norm(2, 48, dtype))
    x, weight = _random(2, 1, 48, dtype=dtype), _random(48, dtype=dtype)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + 1e-5) * weight.astype(np.float64)
    found = run(kernel, [x, weight, np.zeros_like(x)])[-1].astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-4)


@pytest.mark.parametrize("columns", [4096, 100, 3])
@pytest.mark.parametrize("rows", [None, 1, 5])
def test_softmax(rows: int | None, columns: int) -> None:
    kernel = compiled(scheduled(schedule_rows, _softmax(rows, columns)))
    for count in [rows] if rows else [1, 40]:
        x = _random(count, columns) * 10
        weights = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
        expected = weights / weights.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(run(kernel, [x, np.zeros_like(x)])[-1], expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("columns", [1536, 20])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gate(columns: int, dtype: str) -> None:
    kernel = compiled(scheduled(schedule_rows, _gate(None, columns, dtype)))
    for count in (1, 7, 50):
        x = _random(1, count, 2 * columns, dtype=dtype) * np.array(8, dtype_of(dtype))
        gate, up = x[..., :columns].astype(np.float64), x[..., columns:].astype(np.float64)
        expected = gate / (1 + np.exp(-gate)) * up
        found = run(kernel, [x, np.zeros((1, count, columns), dtype_of(dtype))])[-1].astype(np.float64)
        tolerance = {"float32": 1e-6, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_a_guard_against_reading_outside_keeps_the_block_as_it_is() -> None:
    """x[i, j - 1] where j > 0: read in vectors, the first would lie outside."""
    x = te.placeholder((3, 16), "float32", name="x")
    shifted = te.compute((3, 16), lambda i, j: tirx.if_then_else(j > 0, x[i, j - 1], tirx.const(0, "float32")))
    values = _random(3, 16)
    found = run(scheduled(schedule_rows, te.create_prim_func([x, shifted])), [values, np.ones_like(values)])[-1]
    np.testing.assert_array_equal(found, np.concatenate([np.zeros((3, 1)), values[:, :-1]], axis=1))


def test_look_ups_by_what_a_buffer_holds() -> None:
    table, ids = te.placeholder((50, 24), "float32", name="table"), te.placeholder((_rows(None),), "int32", name="ids")
    taken = te.compute((ids.shape[0], 24), lambda i, j: table[ids[i], j] * 2)
    numbers, places = _random(50, 24), np.array([3, 49, 0, 3], np.int32)
    kernel = scheduled(schedule_rows, te.create_prim_func([table, ids, taken]))
    found = run(kernel, [numbers, places, np.zeros((4, 24), np.float32)])[-1]
    np.testing.assert_array_equal(found, numbers[places] * 2)


def test_a_block_that_reads_other_rows_is_not_run_row_by_row() -> None:
    x = te.placeholder((4, 16), "float32", name="x")
    axis = te.reduce_axis((0, 16))
    totals = te.compute((4,), lambda i: te.sum(x[i, axis], axis))
    turned = te.compute((4, 16), lambda i, j: x[i, j] - totals[3 - i])
    assert schedule_rows(te.create_prim_func([x, turned]), TARGET) is None


def test_what_does_not_go_along_rows_is_left_to_others() -> None:
    x = te.placeholder((8, 16), "float32")
    axes = [te.reduce_axis((0, 8)), te.reduce_axis((0, 16))]
    total = te.create_prim_func([x, te.compute((1,), lambda _: te.sum(x[axes[0], axes[1]], axes))])
    assert schedule_rows(total, TARGET) is None
    x = te.placeholder((8, _rows(None)), "float32")
    of_unknown_length = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] + 1)])
    assert schedule_rows(of_unknown_length, TARGET) is None


def test_a_reduction_down_the_columns_keeps_its_body() -> None:
    x = te.placeholder((8, 16), "float32")
    axis = te.reduce_axis((0, 8))
    func = te.create_prim_func([x, te.compute((16,), lambda j: te.sum(x[axis, j], axis))])
    values = _random(8, 16)
    found = run(scheduled(schedule_rows, func), [values, np.zeros(16, np.float32)])[-1]
    np.testing.assert_allclose(found, values.sum(axis=0), rtol=1e-5, atol=1e-6)


@functools.cache
def _function_of(vector: Any, count: int) -> Any:
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("kernel")
        x = T.arg("x", T.Buffer((count,), "float32"))
        y = T.arg("y", T.Buffer((count,), "float32"))
        with loop(count // 8) as step:
            places = lanes(step * 8, 8)
            store(y, vector(x[places], 8), places)
    return compiled(builder.get())


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1000), scale=st.sampled_from([1e-6, 1.0, 20.0, 80.0]))
def test_exponentials_are_within_two_units_of_the_last_place(seed: int, scale: float) -> None:
    x = (np.random.default_rng(seed).uniform(-1, 1, 800) * scale).astype(np.float32)
    for vector, exact in ((exp, np.exp), (exp2, np.exp2)):
        found = run(_function_of(vector, 800), [x, np.zeros_like(x)])[-1]
        expected = exact(x.astype(np.float64))
        assert (np.abs(found - expected) <= 2 * np.spacing(expected.astype(np.float32))).all()


def test_exponentials_of_what_is_too_small_or_too_large_stay_finite() -> None:
    x = np.array([-np.inf, -1e30, -200, -126, 127, 200, 1e30, np.inf], np.float32)
    for vector in (exp, exp2):
        found = run(_function_of(vector, 8), [x, np.zeros_like(x)])[-1]
        assert np.isfinite(found).all()
        assert (np.diff(found) >= 0).all()
        assert found[0] < 2e-38


def test_exponentials_of_what_is_no_number_are_none() -> None:
    x = np.array([0, np.nan, 1, 2, np.nan, 3, 4, 5], np.float32)
    for vector in (exp, exp2):
        found = run(_function_of(vector, 8), [x, np.zeros_like(x)])[-1]
        np.testing.assert_array_equal(np.isnan(found), np.isnan(x))
