"""Checkpoints of tiny models as their quantizers write them: every linear layer's matrix, by a format's own
definition."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import ml_dtypes
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
    np.dtype(ml_dtypes.float8_e4m3fn): "float8_e4m3fn",
    np.dtype("i1"): "int8",
    np.dtype("i4"): "int32",
    np.dtype("i8"): "int64",
}


def write(path: Path, tensors: Mapping[str, Array]) -> Path:
    """A safetensors file; bfloat16 is given as its bits, in uint16."""
    described = [
        TensorDescription(name=name, dtype=_TYPES[array.dtype], shape=array.shape) for name, array in tensors.items()
    ]

    def read(one: TensorDescription) -> Tensor:
        array = tensors[one.name]
        return Tensor(description=one, data=array.view(np.uint8) if one.dtype == "float8_e4m3fn" else array)

    write_safetensors(path, described, read)
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


def packed(integers: Array, bits: int) -> Array:
    """(n, m) → (n, m · bits / 32) int32: integer i of a row has the bits from i · bits on, counted from the low end of
    the first word."""
    words = np.zeros((len(integers), -(-integers.shape[1] * bits // 32)), np.uint64)
    for place in range(integers.shape[1]):
        word, shift = divmod(place * bits, 32)
        shifted = integers[:, place].astype(np.uint64) << np.uint64(shift)
        words[:, word] |= shifted & np.uint64(0xFFFFFFFF)
        if shift + bits > 32:
            words[:, word + 1] |= shifted >> np.uint64(32)
    return words.astype(np.uint32).view(np.int32)


def gptq(group: int, bits: int, *, act_order: bool = False, offset: int = 1, symmetric: bool = False) -> Quantizer:
    """AutoGPTQ's layout; the first version stores zero points less one."""

    def quantize(numbers: Array, random: np.random.Generator) -> tuple[dict[str, Array], Array]:
        codes, zeros, scales = random_groups(numbers, random, group=group, bits=bits, symmetric=symmetric)
        zeros = np.maximum(zeros, offset)
        group_of = np.arange(codes.shape[1]) // group
        if act_order:
            group_of = random.permutation(group_of)
        wide = codes.astype(np.float16) - zeros[:, group_of].astype(np.float16)
        parts = {
            "qweight": np.ascontiguousarray(packed(codes, bits).T),
            "qzeros": packed(np.ascontiguousarray(zeros.T) - np.uint8(offset), bits),
            "scales": np.ascontiguousarray(scales.T),
            "g_idx": group_of.astype(np.int32),
        }
        return parts, wide * scales[:, group_of]

    return quantize


def pack_quantized(group: int, bits: int, *, symmetric: bool = True) -> Quantizer:
    """The format pack-quantized of compressed-tensors."""

    def quantize(numbers: Array, random: np.random.Generator) -> tuple[dict[str, Array], Array]:
        width = numbers.shape[1] if group < 0 else group
        codes, zeros, scales = random_groups(numbers, random, group=width, bits=bits, symmetric=symmetric)
        parts = {
            "weight_packed": packed(codes, bits),
            "weight_scale": scales,
            "weight_shape": np.array(numbers.shape, np.int64),
        }
        if not symmetric:
            parts["weight_zero_point"] = np.ascontiguousarray(packed(np.ascontiguousarray(zeros.T), bits).T)
        return parts, restore(codes, zeros, scales)

    return quantize


def four_bits(block: int, *, nested: int | None = None, kind: str = "nf4") -> Quantizer:
    """bitsandbytes' 4 bits: any table of 16 numbers, a scale a block, which may be a byte with a scale of its own."""

    def quantize(numbers: Array, random: np.random.Generator) -> tuple[dict[str, Array], Array]:
        codes = random.integers(0, 16, numbers.size).astype(np.uint8)
        blocks = -(-numbers.size // block)
        table = np.sort(random.uniform(-1, 1, 16)).astype(np.float32)
        state: dict[str, object] = {
            "quant_type": kind,
            "blocksize": block,
            "dtype": "float16",
            "shape": list(numbers.shape),
        }
        parts = {"weight": (codes[0::2] << 4 | codes[1::2]).reshape(-1, 1), "weight.quant_map": table}
        if nested is None:
            scales = random.uniform(0.01, 0.1, blocks).astype(np.float32)
            parts["weight.absmax"] = scales
        else:
            stored = random.integers(0, 256, blocks).astype(np.uint8)
            map_of = np.sort(random.uniform(-1, 1, 256)).astype(np.float32)
            largest = random.uniform(0.01, 0.1, -(-blocks // nested)).astype(np.float32)
            scales = np.array(
                [map_of[byte] * largest[place // nested] + np.float32(0.05) for place, byte in enumerate(stored)],
                np.float32,
            )
            parts |= {
                "weight.absmax": stored,
                "weight.nested_absmax": largest,
                "weight.nested_quant_map": map_of,
            }
            state |= {"nested_blocksize": nested, "nested_dtype": "float32", "nested_offset": 0.05}
        text = np.frombuffer(json.dumps(state).encode(), np.uint8)
        restored = (table[codes] * np.repeat(scales, block)[: numbers.size]).astype(np.float16)
        return {**parts, f"weight.quant_state.bitsandbytes__{kind}": text}, restored.reshape(numbers.shape)

    return quantize


def eight_bits(numbers: Array, random: np.random.Generator) -> tuple[dict[str, Array], Array]:
    """bitsandbytes' LLM.int8()."""
    codes = random.integers(-127, 128, numbers.shape).astype(np.int8)
    largest = random.uniform(0.01, 0.5, len(numbers)).astype(np.float32)
    restored = codes.astype(np.float32) * (largest / np.float32(127))[:, np.newaxis]
    return {"weight": codes, "SCB": largest, "weight_format": np.zeros((), np.uint8)}, restored


def float8(rows: int, columns: int, *, scale: str) -> Quantizer:
    """E4M3 with a scale, of the name, for each block of rows and columns; 0 is all of them."""

    def quantize(numbers: Array, random: np.random.Generator) -> tuple[dict[str, Array], Array]:
        out, width = numbers.shape
        height, length = rows or out, columns or width
        shape = (1,) if not rows and not columns else (-(-out // height), -(-width // length))
        codes = random.integers(0, 256, numbers.shape).astype(np.uint8)
        codes[codes & 0x7F == 0x7F] = 0x80
        floats = codes.view(ml_dtypes.float8_e4m3fn)
        scales = np.exp(random.uniform(-9, -8, shape)).astype(np.float32)
        restored = floats.astype(np.float32)
        for row in range(out):
            along = scales if len(shape) == 1 else np.repeat(scales[row // height], length)[:width]
            restored[row] *= along
        return {"weight": floats, scale: scales}, restored

    return quantize
