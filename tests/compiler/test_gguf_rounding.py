"""Logits of a file with quantized matrices, as llama.cpp computes them, differ by one thing from those of the same
numbers in float32: llama.cpp multiplies blocks of integers by activations that it rounds to blocks of integers as well.

Of gpt-oss, where two experts are about as good, rounding has another one chosen, and attention hands what that adds to
a token on to all tokens behind it. Recurrent states keep and add up what rounding changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler.weights.gguf_file import GGUFFile
from tests.compiler import schemes
from tests.compiler.gguf_cases import CASES
from tests.compiler.gguf_parity import read_file
from tests.compiler.gguf_writing import file_of
from tests.compiler.resolving import parameters_of
from tests.compiler.rounded_activations import round_before_products, rounded_to_blocks
from tests.compiler.running import random_model, tensors_of
from tests.compiler.test_gguf_packages import ROUNDED_APART, TEXT, logits, packaged
from tests.compiler.tiny_models import Array

# A number that lies in the middle of two integers may be rounded to the other one.
_ROUNDED_OTHERWISE = 3e-2
_IN_CI = {("gpt_oss", "q4f16_0"), ("mamba2", "q4f16_0")}
# In the order of a Qwen3.5's file, heads of 16 columns are no groups of 32: the matrix is float16 there.
_OUTPUT = ("ssm_out.weight", "linear_attn.out_proj.weight")


@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        pytest.param(name, quantization, marks=() if (name, quantization) in _IN_CI else pytest.mark.exhaustive)
        for name in ("gpt_oss", *ROUNDED_APART)
        for quantization in ("q4f16_0", "q8f16_1")
    ],
)
def test_logits_differ_by_rounded_activations_alone(name: str, quantization: str, tmp_path: Path) -> None:
    case = CASES[name]
    config = dict(case.config)
    read = read_file(file_of(tmp_path / "converted.gguf", case))
    path = packaged(tmp_path / "own", config, read.tensors, quantization)
    model, tensors = random_model(config), read_file(path).tensors
    state = tensors_of(model)
    for parameter in parameters_of(config).parameters:
        for source in parameter.sources:
            schemes.replace_tensor(state, source, tensors[source.name])
    plain = logits(packaged(tmp_path / "plain", config, tensors, "q0f32"), context=case.context)
    assert _errors(plain, _logits(model)).max() <= 2e-4
    quantized = logits(path, context=case.context)
    unrounded = _errors(quantized, _logits(model))
    halves = _halves(path, model)

    def rounded(x: Array, matrix: Any) -> Array:
        if matrix.untyped_storage().data_ptr() in halves:
            return x.astype(np.float16).astype(np.float32)
        return rounded_to_blocks(x)

    round_before_products(model, schemes.scheme(quantization), rounded)
    errors = _errors(quantized, _logits(model))
    assert errors[0] <= 1e-6 < unrounded[0]
    assert errors.max() <= _ROUNDED_OTHERWISE < unrounded.max()


def _halves(path: Path, model: Any) -> set[int]:
    """Where the model has matrices of a scheme that are float16 in the file."""
    in_file, in_model = _OUTPUT
    file = GGUFFile(path)
    try:
        types = {tensor.type_number for tensor in file.tensors.values() if tensor.name.endswith(in_file)}
    finally:
        file.close()
    matrices = [tensor for key, tensor in model.state_dict().items() if key.endswith(in_model)]
    return {matrix.untyped_storage().data_ptr() for matrix in matrices} if types == {1} else set()


def _errors(found: Array, expected: Array) -> Array:
    """Of each token's logits, relative to them."""
    errors: Array = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    return errors


def _logits(model: Any) -> Array:
    import torch

    with torch.no_grad():
        found: Array = model(torch.tensor([TEXT])).logits[0].numpy()
    return found
