"""Floats of 8 bits: encoders against the definition, and kernels to the bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te, tirx

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization import minifloat_kernels
from mlcbuild.compiler.quantization.float8.reader import restoring, rounded_activations
from mlcbuild.compiler.quantization.float8.scheme import Float8Scheme
from mlcbuild.compiler.quantization.minifloat import E2M1, E4M3, E5M2, Minifloat
from mlcbuild.compiler.quantization.minifloat_numbers import half_step, rounded
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler import rounded_activations as reference
from tests.compiler import schemes
from tests.compiler.kernel_running import run
from tests.compiler.schemes import matrix
from tests.compiler.tiny_models import Array

FORMATS = (E4M3, E5M2, E2M1)
NAMES = [name for name in schemes.NAMES if isinstance(schemes.scheme(name), Float8Scheme)]


def _scheme(name: str) -> Float8Scheme:
    scheme = schemes.scheme(name)
    assert isinstance(scheme, Float8Scheme)
    return scheme


def _all_numbers(of: Minifloat) -> Array:
    codes = np.arange(1 << of.bits, dtype=np.uint8)
    return codes.view(getattr(ml_dtypes, of.dtype)).astype(np.float32)


@pytest.mark.parametrize("of", FORMATS, ids=lambda of: of.dtype)
def test_a_kernel_reads_every_number_of_a_format(of: Minifloat) -> None:
    expected = _all_numbers(of)
    given_bits = te.placeholder((len(expected),), "uint8", "bits")
    read = te.compute(given_bits.shape, lambda i: minifloat_kernels.read_bits(given_bits[i], of), name="read")
    function = te.create_prim_func([given_bits, read])
    found = run(function, [np.arange(len(expected), dtype=np.uint8), np.zeros_like(expected)])[-1]
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[finite], expected[finite])
    np.testing.assert_array_equal(np.signbit(found[finite]), np.signbit(expected[finite]))


@pytest.mark.parametrize("to", FORMATS, ids=lambda to: to.dtype)
def test_a_kernel_rounds_as_numpy_does(to: Minifloat) -> None:
    """All numbers of the format, the middles between them, their float32 neighbours, and numbers of every size."""
    numbers = _all_numbers(to)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    middles = (numbers[1:] + numbers[:-1]) / 2
    exact = np.concatenate([numbers, middles])
    near = [np.nextafter(exact, np.float32(side)) for side in (-np.inf, np.inf)]
    random = np.random.default_rng(2)
    sizes = random.choice([-1, 1], 4096) * np.exp(random.uniform(-80, 20, 4096))
    values = np.concatenate([exact, *near, sizes, [to.largest * 4, -to.largest * 4, -0.0]]).astype(np.float32)
    x = te.placeholder(values.shape, "float32", "x")
    function = te.create_prim_func([x, te.compute(x.shape, lambda i: minifloat_kernels.rounded(x[i], to), name="y")])
    found = run(function, [values, np.zeros_like(values)])[-1]
    np.testing.assert_array_equal(found, rounded(values, to).astype(np.float32))


@pytest.mark.parametrize("to", FORMATS, ids=lambda to: to.dtype)
@given(st.lists(st.floats(-1e5, 1e5, width=32), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_what_is_rounded_is_the_nearest(to: Minifloat, values: list[float]) -> None:
    numbers = np.array(values, np.float32)
    every = _all_numbers(to)
    every = every[np.isfinite(every)].astype(np.float64)
    error = np.abs(rounded(numbers, to).astype(np.float64) - numbers)
    nearest = np.abs(every[:, None] - numbers.astype(np.float64)).min(axis=0)
    np.testing.assert_array_equal(error, nearest)
    assert (error <= half_step(np.abs(numbers), to)).all()


def _by_definition(weights: Array, name: str) -> tuple[Array, Array]:
    """Floats and scales, block by block."""
    scheme = _scheme(name)
    assert scheme.scales is not None
    kind = getattr(ml_dtypes, scheme.format.dtype)
    rows, columns = scheme.scales.rows or weights.shape[0], scheme.scales.columns or weights.shape[1]
    shape = -(-weights.shape[0] // rows), -(-weights.shape[1] // columns)
    stored, scales = np.zeros(weights.shape, kind), np.zeros(shape, np.float32)
    for i, j in np.ndindex(*shape):
        place = slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
        block = weights[place]
        largest = np.abs(block).max()
        if scheme.scales.rows == scheme.scales.columns == 0:
            scales[i, j] = max(largest / weights.dtype.type(448), weights.dtype.type(1 / (448 * 512)))
        else:
            scales[i, j] = max(np.float32(largest), np.float32(1e-10)) / np.float32(448)
        stored[place] = np.clip(block.astype(np.float32) / scales[i, j], -448, 448).astype(kind)
    return stored, scales


@pytest.mark.parametrize("name", [name for name in NAMES if _scheme(name).scales is not None])
def test_floats_and_scales_are_those_of_the_definition(name: str) -> None:
    scheme = _scheme(name)
    random = np.random.default_rng(4)
    weights = (random.standard_normal((200, 300)) * np.exp(random.uniform(-6, 2, (200, 1)))).astype(
        dtype_of(scheme.model_dtype)
    )
    weights[:, 256:] = 0
    stored, scales, *static = schemes.encoder(scheme).encode(matrix(weights.shape), weights)
    expected, their_scales = _by_definition(weights, name)
    np.testing.assert_array_equal(stored.view(np.uint8), expected.view(np.uint8))
    np.testing.assert_array_equal(scales.reshape(their_scales.shape), their_scales)
    assert all(not numbers.any() for numbers in static)


@pytest.mark.parametrize("name", NAMES)
def test_experts_are_stored_one_by_one(name: str) -> None:
    scheme = _scheme(name)
    weights = np.random.default_rng(5).standard_normal((3, 40, 96)).astype(dtype_of(scheme.model_dtype))
    weights *= weights.dtype.type(1) / np.arange(1, 4, dtype=weights.dtype)[:, None, None]
    whole = schemes.encoder(scheme).encode(matrix(weights.shape, role=ParameterRole.EXPERTS), weights)
    for expert in range(3):
        part = matrix((1, 40, 96), role=ParameterRole.EXPERTS)
        for one, every in zip(schemes.encoder(scheme).encode(part, weights[expert : expert + 1]), whole, strict=True):
            np.testing.assert_array_equal(one, every[expert : expert + 1])


def _rounding(scheme: Float8Scheme, columns: int, *static: te.Tensor) -> Any:
    shape = (tirx.IntImm("int64", 1), tirx.Var("n", "int64"), tirx.IntImm("int64", columns))
    x = te.placeholder(shape, scheme.model_dtype, "x")
    return te.create_prim_func([x, *static, rounded_activations(x, *static, scheme=scheme)])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("columns", [64, 320])
def test_activations_are_rounded_with_scales_of_their_own(name: str, columns: int) -> None:
    scheme = _scheme(name)
    random = np.random.default_rng(6)
    x = random.standard_normal((1, 5, columns)) * np.exp(random.uniform(-6, 3, (1, 5, columns)))
    x = x.astype(dtype_of(scheme.model_dtype))
    x[0, 3] = 0
    found = run(_rounding(scheme, columns), [x, np.zeros_like(x)])[-1]
    np.testing.assert_array_equal(found, reference.rounded(x.astype(np.float32), scheme).astype(x.dtype))


@pytest.mark.parametrize("name", [name for name in NAMES if _scheme(name).static_scales(matrix((8, 320)))])
def test_stored_scales_of_activations_are_used_where_there_are_any(name: str) -> None:
    scheme = _scheme(name)
    count = scheme.static_scales(matrix((8, 320)))
    scales = te.placeholder((tirx.IntImm("int64", count),), "float32", "scales")
    x = np.random.default_rng(7).standard_normal((1, 4, 320)).astype(dtype_of(scheme.model_dtype))
    function = _rounding(scheme, 320, scales)
    own = run(function, [x, np.zeros(count, np.float32), np.zeros_like(x)])[-1]
    np.testing.assert_array_equal(own, reference.rounded(x.astype(np.float32), scheme).astype(x.dtype))
    given_scales = np.full(count, 0.001, np.float32)  # so that numbers above 0.448 are cut
    floats = rounded(x.astype(np.float32) / np.float32(0.001), E4M3).astype(np.float32)
    found = run(function, [x, given_scales, np.zeros_like(x)])[-1]
    np.testing.assert_array_equal(found, (floats * np.float32(0.001)).astype(x.dtype))


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_restores_every_float_that_is_stored(name: str) -> None:
    """Experts, and all floats, subnormal ones and zeros of both signs among them."""
    scheme = _scheme(name)
    shape = (2, 48, 160)
    parameter = matrix(shape, role=ParameterRole.EXPERTS)
    random = np.random.default_rng(8)
    codes = random.integers(0, 256, shape, dtype=np.uint8)
    numbers = codes.view(getattr(ml_dtypes, scheme.format.dtype))
    codes[~np.isfinite(numbers.astype(np.float32))] = 0x80
    arrays = [numbers]
    if scheme.scales is not None:
        arrays.append(np.exp(random.uniform(-9, -4, scheme.scales.shape(shape))).astype(np.float32))
    expected = schemes.encoder(scheme).decode(parameter, arrays)
    found = run(restoring(scheme, *shape), [*arrays, np.zeros_like(expected)])[-1]
    np.testing.assert_array_equal(found, expected)


def test_tvm_converts_zeros_and_subnormal_numbers_wrong_without_instructions_for_them() -> None:
    """Why kernels read the bits themselves. When this fails, TVM is right, and they need not any more."""
    numbers = _all_numbers(E4M3).astype(ml_dtypes.float8_e4m3fn)
    x = te.placeholder((256,), "float8_e4m3fn", "x")
    function = te.create_prim_func([x, te.compute((256,), lambda i: x[i].astype("float16"), name="y")])
    found = run(function, [numbers, np.zeros(256, np.float16)])[-1]
    assert found[0] != 0
    assert tvm.runtime.tensor(numbers).dtype == "float8_e4m3fn"
