"""Signed bytes for weights and activations: kernels to the bit, with exact sums."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import te

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.int8.reader import activation_scales, integer_product, quantized_activations
from mlcbuild.compiler.quantization.int8.scheme import Int8Scheme
from mlcbuild.compiler.quantization.scheme import IntegerEncoder, StaticScalesEncoder
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.errors import StageError
from tests.compiler import schemes
from tests.compiler.kernel_running import run
from tests.compiler.parity import bound, compare, reference, sequences
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.resolving import parameters_of
from tests.compiler.rounded_activations import round_activations
from tests.compiler.running import Library, random_model, tensors_of
from tests.compiler.schemes import matrix
from tests.compiler.test_llama_parity import MODELS
from tests.compiler.tiny_models import Array

_NAME = "int8_int8_f16"
_LARGEST = np.float32(127)


@pytest.mark.parametrize("static", [0.0, 0.03])
def test_products_are_exact_sums_times_both_scales(static: float) -> None:
    random = np.random.default_rng(1)
    x = (random.standard_normal((5, 320)) * np.exp(random.uniform(-6, 3, (5, 1)))).astype(np.float16)
    x[3] = 0
    integers = random.integers(-127, 128, (24, 320)).astype(np.int8)
    integers[0], scales = 127, np.exp(random.uniform(-9, 0, (24, 1))).astype(np.float32)
    found = _product(x, np.array([static], np.float32), integers, scales)
    own = np.maximum(np.abs(x.astype(np.float32)).max(axis=1, keepdims=True), np.float32(1e-10)) / _LARGEST
    step = np.full_like(own, static) if static else own
    rows = np.clip(np.rint(x.astype(np.float32) / step), -127, 127).astype(np.int64)
    sums = rows @ integers.astype(np.int64).T
    expected = (sums.astype(np.float32) * (step * scales.T)).astype(np.float16)
    np.testing.assert_array_equal(found, expected)


def _product(x: Array, static: Array, integers: Array, scales: Array) -> Array:
    given = [
        te.placeholder(each.shape, str(each.dtype), name)
        for each, name in ((x, "x"), (static, "static"), (integers, "integers"), (scales, "scales"))
    ]
    of_rows = activation_scales(given[0], given[1])
    rows = quantized_activations(given[0], of_rows)
    compute = functools.partial(integer_product, dtype="float16")
    kernel = te.create_prim_func([*given, compute(rows, of_rows, given[2], given[3])])
    found: Array = run(kernel, [x, static, integers, scales, np.zeros((len(x), len(integers)), np.float16)])[-1]
    return found


def test_bytes_of_a_checkpoint_are_kept() -> None:
    encoder = schemes.encoder(schemes.scheme(_NAME))
    assert isinstance(encoder, IntegerEncoder)
    random = np.random.default_rng(2)
    whole = IntegerMatrix(
        codes=random.integers(0, 256, (6, 96)).astype(np.uint8),
        zeros=np.full((6, 1), 128, np.uint8),
        scales=np.exp(random.uniform(-9, 0, (6, 1))).astype(np.float32),
        scale_dtype="float32",
    )
    stored = encoder.store(matrix((6, 96)), whole)
    assert stored is not None
    np.testing.assert_array_equal(stored[0], whole.codes.astype(np.int16) - 128)
    np.testing.assert_array_equal(stored[1], whole.scales)
    assert stored[2].tolist() == [0]
    groups = IntegerMatrix(
        codes=whole.codes,
        zeros=np.full((6, 3), 128, np.uint8),
        scales=np.exp(random.uniform(-9, 0, (6, 3))).astype(np.float32),
        scale_dtype="float32",
    )
    assert encoder.store(matrix((6, 96)), groups) is None


def test_static_scales_are_those_of_linear_layers_alone() -> None:
    encoder = schemes.encoder(schemes.scheme(_NAME))
    assert isinstance(encoder, StaticScalesEncoder)
    largest = np.array([0.5, 12.7, 3.0], np.float32)
    assert encoder.static_scales_of(matrix((8, 3)), largest) == np.float32(12.7) / _LARGEST
    assert encoder.static_scales_of(matrix((8, 3)), np.zeros(3, np.float32)) == 0
    experts = matrix((2, 8, 3), role=ParameterRole.EXPERTS)
    assert encoder.static_scales_of(experts, largest) is None
    assert len(schemes.scheme(_NAME).stored(experts)) == 2


def test_rows_whose_sums_may_overflow_are_refused() -> None:
    with pytest.raises(StageError, match="has 131072 columns: sums of so many products of bytes do not fit"):
        schemes.scheme(_NAME).stored(matrix((8, 1 << 17)))


@pytest.mark.slow
def test_a_library_uses_static_scales(tmp_path: Path, kernel_store: Path) -> None:
    config: dict[str, Any] = MODELS["grouped-64-tied"]
    scheme = schemes.scheme(_NAME)
    assert isinstance(scheme, Int8Scheme)
    model = random_model(config)
    state = tensors_of(model)
    scale = np.full(1, 0.02, np.float32)  # which cuts much off
    weights = schemes.stored(config, scheme, {each: array for each, array in state.items() if each != "lm_head.weight"})
    weights |= {name: scale for name in weights if name.endswith("q_calibration_scale")}
    for tensor, numbers in schemes.restored(config, scheme, weights).items():
        state[tensor][...] = numbers
    linear = [one for one in parameters_of(config).parameters if scheme.static_scales(one)]
    round_activations(model, scheme, {source.name: scale for one in linear for source in one.sources})
    library = Library.load(compile_library(config, _NAME, CPU_TARGET, tmp_path, kernel_store=kernel_store), weights)
    texts = sequences(config["vocab_size"])
    expected = [reference(model, text) for text in texts]
    compare(library, texts, expected, allowed=bound(config, scheme, float(np.abs(expected[0]).max())))
