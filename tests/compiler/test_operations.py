"""The closed list of operations: shapes are told before anything is read, and are those that come out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mlcbuild.compiler.models.checkpoints.operations import (
    AddOne,
    Concatenate,
    Flatten,
    LogOfNegative,
    Operation,
    Permute,
    Reshape,
    Slice,
    Split,
    Stack,
    UnitRows,
    result_shape,
)
from mlcbuild.compiler.weights.operations import carry_out
from tests.compiler.tiny_models import Array


def counted(*shape: int, start: int = 0) -> Array:
    return np.arange(start, start + int(np.prod(shape)), dtype=np.float32).reshape(shape)


A, B = counted(2, 3), counted(2, 3, start=10)


@pytest.mark.parametrize(
    ("operations", "given", "expected"),
    [
        ([Concatenate(axis=0)], [A, B], np.concatenate([A, B])),
        ([Concatenate(axis=1)], [A, counted(2, 1)], np.concatenate([A, counted(2, 1)], axis=1)),
        ([Stack(axis=0)], [A, B], np.stack([A, B])),
        ([Stack(axis=2)], [A, B], np.stack([A, B], axis=2)),
        ([Slice(axis=1, begin=1, end=3)], [A], A[:, 1:3]),
        ([Permute(axes=(1, 0))], [A], A.T),
        ([Reshape(shape=(3, 2))], [A], A.reshape(3, 2)),
        ([Split(axis=1, sizes=(1, 2)), Concatenate(axis=1)], [A], A),
        ([Split(axis=1, sizes=(2, 1)), Flatten(axes=2), Concatenate(axis=0)], [A], np.array([0, 1, 3, 4, 2, 5])),
        ([Flatten(axes=2)], [counted(2, 3, 4)], counted(6, 4)),
        ([AddOne()], [A], A + 1),
        ([AddOne(times=-1)], [A], A - 1),
        ([LogOfNegative()], [-np.exp(A)], A),
        ([Slice(axis=0, begin=1, end=2), Concatenate(axis=0), Permute(axes=(1, 0))], [A, B], np.stack([A[1], B[1]]).T),
    ],
)
def test_operations_are_those_of_numpy(operations: Sequence[Operation], given: list[Array], expected: Array) -> None:
    found = carry_out(operations, given)
    np.testing.assert_array_equal(found, expected)
    assert found.flags.c_contiguous
    assert result_shape(operations, [array.shape for array in given]) == expected.shape


@pytest.mark.parametrize(
    ("operations", "shapes", "message"),
    [
        ([Concatenate(axis=0)], [(2, 3), (2, 4)], "cannot be concatenated along axis 0"),
        ([Concatenate(axis=2)], [(2, 3)], "has an axis 2"),
        ([Stack(axis=0)], [(2, 3), (3, 2)], "cannot be stacked"),
        ([Slice(axis=0, begin=1, end=3)], [(2, 3)], "no part from 1 to 3"),
        ([Permute(axes=(0, 0))], [(2, 3)], "no order of the axes"),
        ([Reshape(shape=(5,))], [(2, 3)], "does not fill the shape"),
        ([Split(axis=0, sizes=(1, 2))], [(2, 3)], "does not split into"),
        ([Flatten(axes=3)], [(2, 3)], "has no 3 axes"),
        ([], [(2,), (2,)], "2 tensors are left"),
        ([Concatenate(axis=0)], [], "not every tensor"),
    ],
)
def test_what_does_not_fit_is_told(
    operations: Sequence[Operation], shapes: Sequence[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        result_shape(operations, shapes)


def test_rows_are_divided_by_their_lengths() -> None:
    rows = np.array([[3, 4], [0, 0], [1e-20, 0]], np.float32)
    found = carry_out([UnitRows()], [rows])
    np.testing.assert_allclose(found, np.array([[0.6, 0.8], [0, 0], [1e-8, 0]], np.float32), rtol=1e-6)
    assert carry_out([UnitRows()], [rows.astype(np.float16)]).dtype == np.float16
    with pytest.raises(ValueError, match="is no matrix"):
        result_shape([UnitRows()], [(2, 3, 4)])


def test_logarithms_that_a_gguf_file_took_away_come_back() -> None:
    logs = np.linspace(-80, 16, 1 << 12, dtype=np.float32)
    found = carry_out([LogOfNegative()], [-np.exp(logs)])
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.exp(found.astype(np.float64)), np.exp(logs.astype(np.float64)), rtol=2e-6)
    assert np.isfinite(carry_out([LogOfNegative()], [np.zeros(1, np.float32)])).all()
    for bad in (1.0, np.nan):
        with pytest.raises(ValueError, match="numbers that are not negative"):
            carry_out([LogOfNegative()], [np.array([-1.0, bad], np.float32)])
