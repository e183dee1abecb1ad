"""Checkpoints of tiny models as their quantizers write them: every linear layer's matrix, by a format's own
definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.weights.safetensors_file import write_safetensors
from mlcbuild.compiler.weights.tensor import Tensor, TensorDescription
from tests.compiler.resolving import parameters_of
from tests.compiler.tiny_models import Array

Quantizer = Callable[[Array, np.random.Generator], tuple[dict[str, Array], Array]]
"""Of a matrix (out, in) in float32, the tensors that are stored for it, by their names below the module, and the
numbers that these stand for, in the type of the checkpoint."""

_TYPES = {
    np.dtype("f4"): "float32",
    np.dtype("f2"): "float16",
    np.dtype("u2"): "bfloat16",
    np.dtype("u1"): "uint8",
    np.dtype("i1"): "int8",
    np.dtype("i4"): "int32",
    np.dtype("i8"): "int64",
}


def write(path: Path, tensors: Mapping[str, Array]) -> Path:
    """A safetensors file; bfloat16 is given as its bits, in uint16."""
    described = [
        TensorDescription(name=name, dtype=_TYPES[array.dtype], shape=array.shape) for name, array in tensors.items()
    ]
    write_safetensors(path, described, lambda one: Tensor(description=one, data=tensors[one.name]))
    return path


def quantized_tensors(
    config: Mapping[str, object], quantizer: Quantizer, *, seed: int = 0
) -> tuple[dict[str, Array], dict[str, Array]]:
    """A random checkpoint in float16 with the matrices of linear layers quantized, and the same restored."""
    random = np.random.default_rng(seed)
    plain = {key: value for key, value in config.items() if key != "quantization_config"}
    stored: dict[str, Array] = {}
    restored: dict[str, Array] = {}
    for parameter in parameters_of(plain).parameters:
        for tensor in parameter.sources:
            numbers = (random.standard_normal(tensor.shape) * 0.1).astype(np.float32)
            if parameter.role is ParameterRole.LINEAR:
                module = tensor.name.removesuffix("weight")
                parts, restored[tensor.name] = quantizer(numbers, random)
                stored |= {module + name: array for name, array in parts.items()}
            else:
                stored[tensor.name] = restored[tensor.name] = numbers.astype(np.float16)
    return stored, restored


def random_groups(
    numbers: Array, random: np.random.Generator, *, group: int, bits: int, symmetric: bool = False
) -> tuple[Array, Array, Array]:
    """Codes (out, in), zeros and scales (out, groups), which are float16, of all values that the bits have."""
    rows, columns = numbers.shape
    largest = (1 << bits) - 1
    groups = columns // group
    codes = random.integers(0, largest, numbers.shape, endpoint=True).astype(np.uint8)
    zeros = random.integers(0, largest, (rows, groups), endpoint=True).astype(np.uint8)
    if symmetric:
        zeros[...] = 1 << (bits - 1)
    scales = (np.exp(random.uniform(-6, -4, (rows, groups))) * 8 / (1 << bits)).astype(np.float16)
    return codes, zeros, scales


def restore(codes: Array, zeros: Array, scales: Array) -> Array:
    """(code - zero) * scale in float16, element by element."""
    group = codes.shape[1] // scales.shape[1]
    wide = codes.astype(np.float16) - np.repeat(zeros, group, axis=1).astype(np.float16)
    numbers: Array = wide * np.repeat(scales, group, axis=1)
    return numbers


def awq(group: int) -> Quantizer:
    """AutoAWQ's GEMM layout."""

    def quantize(numbers: Array, random: np.random.Generator) -> tuple[dict[str, Array], Array]:
        codes, zeros, scales = random_groups(numbers, random, group=group, bits=4)
        parts = {"qweight": _awq_words(codes), "qzeros": _awq_words(zeros), "scales": np.ascontiguousarray(scales.T)}
        return parts, restore(codes, zeros, scales)

    return quantize


def _awq_words(integers: Array) -> Array:
    """(outputs, n) → (n, outputs / 8): nibble i of a word is the output order[i] of its eight."""
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    words = np.zeros((integers.shape[1], integers.shape[0] // 8), np.uint32)
    for column in range(words.shape[1]):
        for nibble, output in enumerate(order):
            words[:, column] |= integers[column * 8 + output].astype(np.uint32) << np.uint32(4 * nibble)
    return words.view(np.int32)
