"""Products by panels: right for odd numbers of vectors and any run along k, and absent where they do not fit."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels import panels
from mlcbuild.compiler.backends.cpu.kernels.panels import PanelShape, schedule_panels
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

_ROUNDING = {"float32": 1e-6, "float16": 1.2e-3, "bfloat16": 1e-2}  # of the largest result


@pytest.fixture(params=[8, 16])
def floats_of_a_register(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Processors with registers of eight floats compute with sixteen too, in two of them."""
    monkeypatch.setattr(panels, "register_lanes", lambda _target: request.param)
    return int(request.param)


def _shaped(func: tirx.PrimFunc, shape: PanelShape) -> tirx.PrimFunc:
    matched = schedule_panels.match(func, TARGET)
    assert matched is not None
    made = schedule_panels.build(matched, shape)
    assert made is not None
    return made


def _check(
    kernel: object, n: int, k: int, rows: int, *, dtype: str = "float32", bits: int = 4, group: int = 32
) -> None:
    x, words, scales = packed_arrays(n, k, rows, dtype=dtype, bits=bits, group=group)
    matrix = restored_matrix(words, scales, bits=bits, group=group).T
    expected = x.astype(np.float64) @ matrix
    found = run(kernel, [x, words, scales, np.zeros(expected.shape, dtype_of(dtype))])[-1]
    _close(found, expected, dtype, terms=float((np.abs(x).astype(np.float64) @ np.abs(matrix)).max()))


def _close(found: Array, expected: Array, dtype: str, *, terms: float = 0.0) -> None:
    """`terms` is the largest sum of the absolute values that a result adds up: they may cancel."""
    atol = _ROUNDING[dtype] * np.abs(expected).max() + 3e-7 * terms
    np.testing.assert_allclose(found.astype(np.float64), expected, atol=atol)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("n", "k"), [(48, 576), (16, 96)])
def test_any_number_of_vectors(floats_of_a_register: int, dtype: str, n: int, k: int) -> None:
    kernel = compiled(scheduled(schedule_panels, packed_product(n, k, None, dtype=dtype)))
    for rows in (1, 2, 3, 7, 12, 29):
        _check(kernel, n, k, rows, dtype=dtype)
    assert floats_of_a_register in (8, 16)


@pytest.mark.usefixtures("floats_of_a_register")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_sums_wait_from_one_run_to_the_next(dtype: str) -> None:
    kernel = compiled(_shaped(packed_product(32, 1536, None, dtype=dtype), PanelShape(rows=32, vectors=3, places=256)))
    for rows in (5, 13):
        _check(kernel, 32, 1536, rows, dtype=dtype)


@pytest.mark.parametrize(("bits", "group"), [(8, 32), (4, 128), (3, 40), (2, 64)])
def test_other_packings(bits: int, group: int) -> None:
    kernel = scheduled(schedule_panels, packed_product(24, 6 * group, 5, bits=bits, group=group))
    _check(kernel, 24, 6 * group, 5, bits=bits, group=group)


@pytest.mark.usefixtures("floats_of_a_register")
@pytest.mark.parametrize("batch_first", [False, True])
def test_what_follows_a_product_is_done_with_its_panel(batch_first: bool) -> None:
    func = packed_product(64, 160, None, dtype="float16", residual=True, batch_first=batch_first)
    kernel = compiled(scheduled(schedule_panels, func))
    for rows in (1, 6):
        x, words, scales = packed_arrays(64, 160, rows, dtype="float16", bits=4, group=32)
        other = np.random.default_rng(1).standard_normal((1, rows, 64)).astype(np.float16)
        expected = x.astype(np.float64) @ restored_matrix(words, scales, bits=4, group=32).T + other.astype(np.float64)
        arrays = [x, words, scales, other, np.zeros_like(other)]
        if batch_first:
            for index in (0, 3, 4):
                arrays[index] = arrays[index].transpose(1, 0, 2)
            expected = expected.transpose(1, 0, 2)
        _close(run(kernel, arrays)[-1], expected, "float16")


def test_a_vector_has_the_same_numbers_among_any_others(floats_of_a_register: int) -> None:
    kernel = compiled(scheduled(schedule_panels, packed_product(32, 1280, None, dtype="float16")))
    x, words, scales = packed_arrays(32, 1280, 37, dtype="float16", bits=4, group=32)
    whole = run(kernel, [x, words, scales, np.zeros((1, 37, 32), np.float16)])[-1]
    for first, count in ((0, 2), (3, 4), (5, 7), (20, 13)):
        found = run(kernel, [x[:, first : first + count], words, scales, np.zeros((1, count, 32), np.float16)])[-1]
        np.testing.assert_array_equal(found, whole[:, first : first + count], err_msg=str(floats_of_a_register))


@pytest.mark.parametrize(
    "func",
    [
        packed_product(8, 64, 1),
        packed_product(12, 64, None),
        packed_product(16, 96, None, by_columns=True),
        packed_product(16, 88, None, bits=3, group=40),
        plain_product(16, 64, None),
    ],
    ids=["one vector", "part of a register", "by columns", "short group", "not packed"],
)
def test_other_products_are_left_to_others(func: tirx.PrimFunc) -> None:
    assert schedule_panels(func, TARGET) is None


def test_processors_of_fewer_registers_are_left_to_others() -> None:
    old = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v2", "mtriple": "x86_64-linux-gnu"})
    assert schedule_panels(packed_product(32, 64, None), old) is None


def test_shapes_fit_the_matrix_and_the_registers() -> None:
    shapes = schedule_panels.candidates(packed_product(96, 576, None), TARGET)
    assert shapes[0] == {"rows": 16, "vectors": 6, "places": 1024}
    assert len(shapes) > 3
    for shape in shapes:
        assert 96 % shape["rows"] == 0
        assert shape["rows"] // 8 * shape["vectors"] <= 12
