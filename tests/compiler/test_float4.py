"""Floats of 4 bits: MXFP4 and NVFP4 against their definitions and other readers, and kernels to the bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.float4.encoder import packed
from mlcbuild.compiler.quantization.float4.reader import restoring
from mlcbuild.compiler.quantization.float4.scheme import Float4Scheme
from mlcbuild.compiler.weights import mxfp4
from mlcbuild.compiler.weights.bit_packing import unpacked
from mlcbuild.compiler.weights.tensor import dtype_of
from mlcbuild.errors import StageError
from tests.compiler import schemes
from tests.compiler.kernel_running import run
from tests.compiler.schemes import matrix
from tests.compiler.tiny_models import Array

NAMES = [name for name in schemes.NAMES if isinstance(schemes.scheme(name), Float4Scheme)]


def _scheme(name: str) -> Float4Scheme:
    scheme = schemes.scheme(name)
    assert isinstance(scheme, Float4Scheme)
    return scheme


def _weights(*shape: int) -> Array:
    random = np.random.default_rng(3)
    weights = random.standard_normal(shape) * np.exp(random.uniform(-9, 2, (*shape[:-1], 1)))
    weights[..., 64:96] = 0
    return weights.astype(dtype_of("bfloat16"))


def test_words_hold_the_bytes_of_checkpoints() -> None:
    codes = np.random.default_rng(1).integers(0, 16, (3, 32), dtype=np.uint8)
    words = packed(codes)
    np.testing.assert_array_equal(words.view(np.uint8), codes[:, 0::2] | codes[:, 1::2] << 4)
    np.testing.assert_array_equal(unpacked(words, 4), codes)


def test_mxfp4_is_what_the_reader_of_checkpoints_reads() -> None:
    scheme = _scheme("mxfp4_bf16")
    random = np.random.default_rng(2)
    words = random.integers(0, 1 << 32, (5, 24), dtype=np.uint32)
    scales = random.integers(0, 255, (5, 6), dtype=np.uint8)
    numbers = schemes.encoder(scheme).decode(matrix((5, 192)), [words, scales])
    bits = mxfp4.dequantize(words.view(np.uint8).reshape(5, 6, 16), scales)
    np.testing.assert_array_equal(numbers.view(np.uint16), bits)


def test_mxfp4_has_the_scales_of_the_specification() -> None:
    weights = _weights(4, 128)
    _, scales = schemes.encoder(_scheme("mxfp4_bf16")).encode(matrix(weights.shape), weights)
    for row, group in np.ndindex(4, 4):
        largest = float(np.abs(weights[row, group * 32 : group * 32 + 32].astype(np.float64)).max())
        expected = int(np.floor(np.log2(largest))) - 2 + 127 if largest else 0
        assert scales[row, group] == expected


def test_nvfp4_has_the_scales_of_its_definition() -> None:
    weights = _weights(4, 128)
    words, scales, common = schemes.encoder(_scheme("nvfp4_bf16")).encode(matrix(weights.shape), weights)
    wide = weights.astype(np.float32)
    assert common == [np.abs(wide).max() / np.float32(2688)]
    largest = np.abs(wide.reshape(4, 8, 16)).max(axis=2)
    np.testing.assert_array_equal(scales, (largest / np.float32(6) / common).astype(ml_dtypes.float8_e4m3fn))
    step = scales.astype(np.float32)[:, :, None] * common
    quotients = np.divide(wide.reshape(4, 8, 16), step, where=step > 0, out=np.zeros((4, 8, 16), np.float32))
    codes = np.clip(quotients, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    np.testing.assert_array_equal(unpacked(words, 4), codes.reshape(4, 128))


@pytest.mark.parametrize("name", NAMES)
def test_experts_are_stored_one_by_one_and_restored_by_a_kernel(name: str) -> None:
    scheme = _scheme(name)
    weights = _weights(3, 8, 128)
    parameter = matrix(weights.shape, role=ParameterRole.EXPERTS)
    encoder = schemes.encoder(scheme)
    whole = encoder.encode(parameter, weights)
    for expert in range(3):
        part = matrix((1, 8, 128), role=ParameterRole.EXPERTS)
        for one, every in zip(encoder.encode(part, weights[expert : expert + 1]), whole, strict=True):
            np.testing.assert_array_equal(one.view(np.uint8), every[expert : expert + 1].view(np.uint8))
    expected = encoder.decode(parameter, whole)
    found = run(restoring(scheme, *weights.shape), [*whole, np.zeros_like(expected)])[-1]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", NAMES)
def test_groups_that_do_not_divide_are_refused_by_name(name: str) -> None:
    with pytest.raises(StageError, match=r"model\.x\.weight has 40 columns, which groups of \d+ do not divide"):
        _scheme(name).stored(matrix((2, 40), name="model.x.weight"))
