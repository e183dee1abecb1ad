"""GPTQ's choice of integers: the paper's, with less error than rounding to nearest, and equal bytes everywhere."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.compiler.calibration import gptq
from mlcbuild.compiler.calibration.exact_products import product, sliced
from mlcbuild.compiler.calibration.inverse_factor import unit_inverse_factor
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.integer_grid import GridEncoder, IntegerGrid
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.errors import StageError
from tests.compiler import schemes
from tests.compiler.schemes import matrix
from tests.compiler.tiny_models import Array

_GRIDS = [name for name in schemes.NAMES if isinstance(schemes.encoder(schemes.scheme(name)), GridEncoder)]
# One of each kind of grid: groups of 32 in three types, groups of 40 whose last is short, 8 bits, zero points, rows.
_KINDS = ("q4f32_1", "q4f16_0", "q4bf16_1", "q3f16_1", "q8f16_1", "q4f16_autoawq", "q4f16_ft")


def grid_of(name: str, shape: tuple[int, ...], role: ParameterRole = ParameterRole.LINEAR) -> IntegerGrid:
    encoder = schemes.encoder(schemes.scheme(name))
    assert isinstance(encoder, GridEncoder)
    grid = encoder.grid(matrix(shape, role=role))
    assert grid is not None
    return grid


def correlated(random: np.random.Generator, columns: int, *, rows: int | None = None) -> Array:
    """The Gram matrix of inputs whose columns follow few directions, as a model's do."""
    few = max(2, columns // 8)
    inputs = random.standard_normal((rows or 4 * columns, few)) @ random.standard_normal((few, columns))
    inputs += 0.3 * random.standard_normal(inputs.shape)
    gram: Array = (inputs.T @ inputs).astype(np.float32)
    return gram


def chosen(name: str, weights: Array, gram: Array, *, by_activations: bool = False) -> IntegerMatrix:
    using = gptq.feedback(gram, by_activations=by_activations)
    return gptq.quantized(rounded(name, weights), using, grid_of(name, weights.shape))


def rounded(name: str, weights: Array) -> Array:
    """Weights as Quantize has them, in the model's dtype."""
    return weights.astype(grid_of(name, weights.shape).dtype)


def decoded(name: str, found: IntegerMatrix) -> Array:
    """What the scheme reads of the integers, in float64; they have to be kept."""
    encoder, parameter = schemes.encoder(schemes.scheme(name)), matrix(found.codes.shape)
    assert isinstance(encoder, GridEncoder)
    stored = encoder.store(parameter, found)
    assert stored is not None
    return encoder.decode(parameter, stored).astype(np.float64)


def nearest(name: str, weights: Array) -> Array:
    encoder, parameter = schemes.encoder(schemes.scheme(name)), matrix(weights.shape)
    return encoder.decode(parameter, encoder.encode(parameter, rounded(name, weights))).astype(np.float64)


def error(difference: Array, gram: Array) -> float:
    return float(np.trace(difference @ gram.astype(np.float64) @ difference.T))


def papers(name: str, weights: Array, gram: Array) -> tuple[Array, Array]:
    """The algorithm as the paper has it, with LAPACK: of the inverse of 2 X Xᵀ, Cholesky's factor. Gives the codes, and
    how far each quotient is from a tie."""
    grid = grid_of(name, weights.shape)
    hessian = 2 * gram.astype(np.float64)
    hessian += np.eye(len(hessian)) * gptq.DAMPING * np.mean(np.diagonal(hessian))
    factor = np.linalg.cholesky(np.linalg.inv(hessian)).T
    now, size = rounded(name, weights).astype(np.float64), grid.group_size
    codes, ties = np.empty(now.shape, np.uint8), np.empty(now.shape)
    for column in range(now.shape[1]):
        if column % size == 0:
            group = now[:, column : column + size].astype(np.float32)
            scales, zeros = grid.of_range(group.min(axis=1), group.max(axis=1))
        quotient = now[:, column] / scales.astype(np.float64)
        codes[:, column] = (np.rint(quotient) + zeros).clip(0, grid.largest)
        ties[:, column] = np.abs(np.abs(quotient - np.trunc(quotient)) - 0.5)
        back = ((codes[:, column].astype(np.float32) - zeros) * scales.astype(np.float32)).astype(grid.dtype)
        errors = (now[:, column] - back.astype(np.float64)) / factor[column, column]
        now[:, column:] -= np.outer(errors, factor[column, column:])
    return codes, ties


@pytest.mark.parametrize("name", _KINDS)
@pytest.mark.parametrize("columns", [24, 256, 320])
def test_the_integers_are_those_of_the_paper(name: str, columns: int) -> None:
    if columns % 32 and name not in ("q3f16_1", "q4f16_autoawq", "q4f16_ft"):
        columns = 32
    random = np.random.default_rng(columns)
    weights = random.standard_normal((16, columns)).astype(np.float32) * np.float32(0.1)
    gram = correlated(random, columns)
    found, (expected, ties) = chosen(name, weights, gram), papers(name, weights, gram)
    # Behind a tie a row goes on with other errors.
    near = np.logical_or.accumulate(ties < 1e-9, axis=1)
    assert near.mean() < 0.01
    np.testing.assert_array_equal(found.codes[~near], expected[~near])


@pytest.mark.parametrize("name", _GRIDS)
@pytest.mark.parametrize("by_activations", [False, True])
def test_the_error_of_products_is_far_below_that_of_rounding(name: str, by_activations: bool) -> None:
    random = np.random.default_rng(5)
    weights = random.standard_normal((24, 320)).astype(np.float32) * np.float32(0.1)
    gram = correlated(random, 320)
    found = chosen(name, weights, gram, by_activations=by_activations)
    exact = rounded(name, weights).astype(np.float64)
    calibrated, without = error(decoded(name, found) - exact, gram), error(nearest(name, weights) - exact, gram)
    assert calibrated < 0.5 * without, (calibrated, without)


@pytest.mark.parametrize("name", _KINDS)
@pytest.mark.parametrize("by_activations", [False, True])
def test_columns_that_are_not_correlated_are_rounded_to_nearest(name: str, by_activations: bool) -> None:
    random = np.random.default_rng(6)
    weights = random.standard_normal((8, 320)).astype(np.float32)
    gram = np.diag(random.uniform(0, 9, 320).astype(np.float32))
    found = decoded(name, chosen(name, weights, gram, by_activations=by_activations))
    exact, expected = rounded(name, weights).astype(np.float64), nearest(name, weights)
    if name == "q4f32_1":
        np.testing.assert_array_equal(found, expected)
    # The encoders of 16 bits round quotients before they round to integers; here each number is the nearest.
    assert (np.abs(found - exact) <= np.abs(expected - exact)).all()
    assert (found != expected).mean() < (0.2 if name == "q8f16_1" else 0.02)


@pytest.mark.parametrize("name", ["q4f16_1", "q3f16_1", "q4f16_autoawq"])
def test_an_input_that_was_never_seen_leaves_rounding_to_nearest(name: str) -> None:
    weights = np.random.default_rng(7).standard_normal((8, 160)).astype(np.float32)
    empty = chosen(name, weights, np.zeros((160, 160), np.float32))
    apart = chosen(name, weights, np.eye(160, dtype=np.float32))
    np.testing.assert_array_equal(empty.codes, apart.codes)
    np.testing.assert_array_equal(empty.scales, apart.scales)


@pytest.mark.parametrize("by_activations", [False, True])
def test_columns_that_were_never_seen_change_no_others(by_activations: bool) -> None:
    random = np.random.default_rng(8)
    weights = random.standard_normal((8, 128)).astype(np.float32)
    gram = correlated(random, 128)
    unseen = np.arange(96, 128)
    gram[unseen] = gram[:, unseen] = 0
    found = chosen("q4f32_1", weights, gram, by_activations=by_activations)
    np.testing.assert_array_equal(decoded("q4f32_1", found)[:, unseen], nearest("q4f32_1", weights)[:, unseen])
    other = weights.copy()
    other[:, unseen] *= 3
    same = chosen("q4f32_1", other, gram, by_activations=by_activations)
    np.testing.assert_array_equal(found.codes[:, :96], same.codes[:, :96])


def test_few_samples_make_a_singular_matrix_which_damping_mends() -> None:
    random = np.random.default_rng(9)
    weights = random.standard_normal((8, 256)).astype(np.float32)
    gram = correlated(random, 256, rows=3)
    assert np.linalg.matrix_rank(gram) <= 3
    found = decoded("q4f32_1", chosen("q4f32_1", weights, gram))
    assert error(found - weights, gram) < 0.1 * error(nearest("q4f32_1", weights) - weights, gram)


def test_a_matrix_that_rounding_left_without_a_factor_is_damped_more() -> None:
    gram = np.array([[1, 1.5], [1.5, 1]], np.float32)
    assert unit_inverse_factor(gram + np.eye(2) * gptq.DAMPING) is None
    found = gptq.feedback(gram, by_activations=False)
    assert np.isfinite(found.factor).all()
    assert found.factor[1, 0] == 0


def test_a_matrix_that_is_not_finite_is_refused() -> None:
    with pytest.raises(StageError, match="not finite"):
        gptq.feedback(np.full((4, 4), np.inf, np.float32), by_activations=False)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    name=st.sampled_from(_KINDS),
    groups=st.integers(1, 4),
    scale=st.floats(1e-6, 100),
    by_activations=st.booleans(),
)
def test_every_result_is_one_that_the_scheme_keeps(
    seed: int, name: str, groups: int, scale: float, by_activations: bool
) -> None:
    random = np.random.default_rng(seed)
    columns = 32 * groups
    weights = (random.standard_normal((8, columns)) * scale).astype(np.float32)
    weights[:, : random.integers(0, columns)] *= random.choice([0, 1, 30])
    found = chosen(name, weights, correlated(random, columns), by_activations=by_activations)
    grid = grid_of(name, weights.shape)
    differences = found.codes.astype(np.float32) - np.repeat(found.zeros, found.group_size, axis=1)
    exact = differences * np.repeat(found.scales, found.group_size, axis=1)
    np.testing.assert_array_equal(decoded(name, found), exact.astype(grid.dtype).astype(np.float64))


def test_rows_do_not_depend_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(10)
    weights = random.standard_normal((9, 256)).astype(np.float32)
    gram = correlated(random, 256)
    whole = chosen("q4f16_1", weights, gram)
    monkeypatch.setattr(gptq, "_ROWS_ELEMENTS", 512)
    parts = chosen("q4f16_1", weights, gram)
    for name in ("codes", "zeros", "scales"):
        assert getattr(whole, name).tobytes() == getattr(parts, name).tobytes()


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 9), terms=st.integers(1, 200))
def test_products_are_the_same_in_whatever_order_they_are_summed(seed: int, rows: int, terms: int) -> None:
    random = np.random.default_rng(seed)
    spread = np.exp(random.uniform(-40, 40, (2 * rows, 1)))
    left, right = np.split(random.standard_normal((2 * rows, terms)) * spread, 2)
    found = product(sliced(left), sliced(right))
    order = random.permutation(terms)
    assert found.tobytes() == product(sliced(left[:, order].copy()), sliced(right[:, order].copy())).tobytes()
    assert found.tobytes() == by_integers(left, right).tobytes()
    largest = np.abs(left).max(axis=1)[:, np.newaxis] * np.abs(right).max(axis=1)
    assert (np.abs(found - left @ right.T) <= largest * terms * 2.0**-40).all()


def by_integers(left: Array, right: Array) -> Array:
    """The product of slices by Python's integers, which nothing rounds."""
    ours, theirs = sliced(left), sliced(right)
    bits = (53 - max(left.shape[1] - 1, 1).bit_length()) // 2
    found = np.empty((len(left), len(right)))
    for row, column in itertools.product(range(len(left)), range(len(right))):
        high = [[int(x) for x in side.high[at]] for side, at in ((ours, row), (theirs, column))]
        low = [[int(x) for x in side.low[at]] for side, at in ((ours, row), (theirs, column))]
        most = sum(a * b for a, b in zip(high[0], high[1], strict=True))
        crossed = sum(a * b for a, b in zip(high[0] + low[0], low[1] + high[1], strict=True))
        assert max(abs(most), abs(crossed)) <= 1 << 53
        exponent = int(ours.exponents[row]) + int(theirs.exponents[column]) - 2 * bits
        found[row, column] = np.ldexp(crossed * 2.0**-bits + float(most), exponent)
    return found


@pytest.mark.parametrize("size", [1, 7, 128, 300])
def test_the_factor_is_lapacks(size: int) -> None:
    gram = correlated(np.random.default_rng(size), size).astype(np.float64)
    gram += np.eye(size) * 0.01 * np.mean(np.diagonal(gram))
    found: Any = unit_inverse_factor(gram)
    factor = np.linalg.cholesky(np.linalg.inv(gram)).T
    np.testing.assert_allclose(found, factor / np.diagonal(factor)[:, np.newaxis], rtol=0, atol=1e-10)
    np.testing.assert_array_equal(found, np.triu(found))
    np.testing.assert_array_equal(np.diagonal(found), np.ones(size))
