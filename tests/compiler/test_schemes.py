"""Every quantization scheme in the folder keeps to the interface: what it stores, how far that is from the weights, and
how a kernel reads it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.relax.frontend import nn

from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.layers import Embedding, Linear, StoredMatrix
from mlcbuild.compiler.quantization.scheme import MODEL_DTYPES, RowEncoder, kept_dtype
from mlcbuild.compiler.weights.tensor import dtype_of
from mlcbuild.errors import StageError
from tests.compiler import schemes
from tests.compiler.schemes import matrix
from tests.compiler.tiny_models import Array

MATRICES = (ParameterRole.EMBEDDING, ParameterRole.LINEAR, ParameterRole.FINAL_FC)
TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
COLUMNS = 256  # a multiple of every group that has to be whole
ROWS = 8  # a multiple of the rows that share a word


@st.composite
def weights(draw: st.DrawFn, dtype: str) -> tuple[Parameter, Array]:
    """Numbers of any size that their group's largest, rounded up, leaves finite; whole groups of zeros among them."""
    role = draw(st.sampled_from(ParameterRole))
    rows, groups = ROWS * draw(st.integers(1, 2)), draw(st.integers(1, 3))
    shape = (rows,) if role is ParameterRole.VECTOR else (rows, groups * COLUMNS)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    numbers = random.uniform(-1, 1, shape) * random.choice([0.0, 1.0, 1.0, 1.0], shape)
    if len(shape) == 2:
        limits = ml_dtypes.finfo(dtype_of(dtype))
        tiny, huge = limits.smallest_subnormal, limits.max
        sizes = np.exp(random.uniform(np.log(float(tiny)), np.log(float(huge) / 2), (rows, groups * COLUMNS // 32, 1)))
        numbers = (numbers.reshape(rows, -1, 32) * sizes * random.choice([0.0, 1.0, 1.0], sizes.shape)).reshape(shape)
    parameter = matrix(shape, role=role)
    return parameter, numbers.astype(dtype_of(kept_dtype(parameter, dtype)))


@pytest.mark.parametrize("name", schemes.NAMES)
def test_what_is_stored_has_the_described_shapes_and_comes_back_within_the_bound(name: str) -> None:
    scheme = schemes.scheme(name)
    encoder = schemes.encoder(scheme)

    @settings(max_examples=60, deadline=None)
    @given(weights(scheme.model_dtype))
    def check(case: tuple[Parameter, Array]) -> None:
        parameter, numbers = case
        described, arrays = scheme.stored(parameter), encoder.encode(parameter, numbers)
        assert [(array.shape, array.dtype) for array in arrays] == [
            (tensor.shape, dtype_of(tensor.dtype)) for tensor in described
        ]
        back = encoder.decode(parameter, arrays)
        assert back.dtype == numbers.dtype
        error = np.abs(back.astype(np.float64) - numbers.astype(np.float64))
        assert (error <= encoder.error_bound(parameter, numbers)).all()
        if not scheme.covers(parameter.role):
            np.testing.assert_array_equal(back, numbers)

    check()


@pytest.mark.parametrize("name", schemes.NAMES)
@pytest.mark.parametrize("role", MATRICES)
def test_rows_that_are_apart_are_stored_alike_alone_and_with_others(name: str, role: ParameterRole) -> None:
    scheme = schemes.scheme(name)
    encoder = schemes.encoder(scheme)
    numbers = np.random.default_rng(1).standard_normal((4 * ROWS, 2 * COLUMNS), np.float32)
    numbers = numbers.astype(dtype_of(scheme.model_dtype))
    if not (isinstance(encoder, RowEncoder) and encoder.has_rows_apart(matrix(numbers.shape, role=role))):
        return
    weight = matrix(numbers.shape, role=role)
    whole = encoder.encode(weight, numbers)
    pieces = [encoder.encode(weight, each) for each in (numbers[:3], numbers[3:])]
    for array, first, second in zip(whole, *pieces, strict=True):
        np.testing.assert_array_equal(array, np.concatenate([first, second]))


@pytest.mark.parametrize("name", schemes.NAMES)
def test_the_bound_is_not_much_wider_than_the_error(name: str) -> None:
    scheme = schemes.scheme(name)
    encoder = schemes.encoder(scheme)
    parameter = matrix((64, 4096))
    numbers = np.random.default_rng(1).standard_normal(parameter.shape, np.float32).astype(dtype_of(scheme.model_dtype))
    back = encoder.decode(parameter, encoder.encode(parameter, numbers))
    error = np.abs(back.astype(np.float64) - numbers.astype(np.float64))
    assert error.max() >= encoder.error_bound(parameter, numbers).min() * 0.5


class _Restored(nn.Module):
    def __init__(self, layer: StoredMatrix) -> None:
        self.layer = layer

    def rows(self, indices: nn.Tensor) -> nn.Tensor:
        return self.layer.rows(indices)


@pytest.mark.parametrize("name", schemes.NAMES)
@pytest.mark.parametrize("role", MATRICES)
def test_a_kernel_on_a_cpu_reads_the_bits_that_numpy_reads(name: str, role: ParameterRole) -> None:
    scheme = schemes.scheme(name)
    rows, columns = 48, 512
    parameter = matrix((rows, columns), name="layer.weight", role=role)
    random = np.random.default_rng(3)
    sizes = np.exp(random.uniform(-12, 4, (rows, 1)))
    numbers = (random.standard_normal((rows, columns)) * sizes).astype(dtype_of(scheme.model_dtype))
    arrays = schemes.encoder(scheme).encode(parameter, numbers)
    layer = StoredMatrix(rows, columns, role=role, reader=schemes.reader(scheme), name="layer")
    order = random.permutation(rows).astype("int32")
    found = _run(_Restored(layer), "rows", order, arrays)
    np.testing.assert_array_equal(found, schemes.encoder(scheme).decode(parameter, arrays)[order])


def _run(module: nn.Module, method: str, argument: Array, parameters: tuple[Array, ...]) -> Any:
    specification = {
        method: {
            "indices": nn.spec.Tensor(list(argument.shape), str(argument.dtype)),
            "$": {"param_mode": "packed", "effect_mode": "none"},
        }
    }
    exported, _ = module.export_tvm(spec=specification)
    machine = tvm.relax.VirtualMachine(tvm.compile(exported, target=TARGET), tvm.cpu())
    stored = [tvm.runtime.tensor(array) for array in parameters]
    return machine[method](tvm.runtime.tensor(argument), stored).numpy()


@pytest.mark.parametrize("name", schemes.NAMES)
def test_layers_have_the_parameters_that_are_stored(name: str) -> None:
    scheme = schemes.scheme(name)
    reader = schemes.reader(scheme)
    cases = (
        (Linear(COLUMNS, 32, reader=reader, name="m"), matrix((32, COLUMNS), name="m.weight")),
        (
            Linear(COLUMNS, 32, reader=reader, name="m", role=ParameterRole.FINAL_FC),
            matrix((32, COLUMNS), name="m.weight", role=ParameterRole.FINAL_FC),
        ),
        (
            Embedding(32, COLUMNS, reader=reader, name="m"),
            matrix((32, COLUMNS), name="m.weight", role=ParameterRole.EMBEDDING),
        ),
    )
    for layer, parameter in cases:
        found = [(f"m.{own}", tuple(each.shape), str(each.dtype)) for own, each in layer.named_parameters()]
        assert found == [(tensor.name, tensor.shape, tensor.dtype) for tensor in scheme.stored(parameter)]


@pytest.mark.parametrize("name", schemes.NAMES)
def test_a_scheme_says_what_it_is(name: str) -> None:
    scheme = schemes.scheme(name)
    assert scheme.name == name
    assert scheme.model_dtype in MODEL_DTYPES
    assert not scheme.covers(ParameterRole.VECTOR)
    assert (scheme.kind == "no-quant") == (not any(map(scheme.covers, ParameterRole)))


def test_the_schemes_are_those_that_can_be_asked_for() -> None:
    assert {"q0f16", "q0f32", "q4f16_1", "q4f32_1"} <= set(schemes.NAMES)


def test_groups_that_do_not_divide_are_refused_by_name() -> None:
    with pytest.raises(StageError, match=r"model\.x\.weight has 688 columns, which groups of 32 do not divide"):
        schemes.scheme("q4f16_1").stored(matrix((2, 688), name="model.x.weight"))
