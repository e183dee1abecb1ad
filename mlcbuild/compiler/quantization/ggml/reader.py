"""How kernels read blocks of ggml: each element from the bytes of its block, in float32, rounded to the model's type.

Products of the numbers in blocks are exact in float32 (11 bits of a float16, up to 8 of a scale, up to 5 of an
integer), so that a difference of two is the same whether or not a processor fuses it with a product.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.quantization.ggml.scheme import GgmlScheme
from mlcbuild.compiler.quantization.reader import Reader, restored_by, restoring_kernel, shape_of
from mlcbuild.compiler.quantization.scheme import Weight
from mlcbuild.compiler.weights.block_types import BLOCK_TYPES, BlockType

Expression = Any  # TVM's expressions carry no types that a checker can read.
Byte = Callable[[Expression | int], Expression]
"""A byte of a block, by its place in it."""


class GgmlReader(Reader):
    """The `Reader` of blocks of ggml."""

    scheme: GgmlScheme

    def restored(self, weight: Weight, stored: Sequence[nn.Tensor]) -> nn.Tensor:
        if not self.scheme.covers(weight.role):
            return stored[0]
        kernel = restoring(self.scheme.block_of(weight).name, self.scheme.model_dtype, *weight.shape)
        return restored_by(kernel, weight, stored, self.scheme.model_dtype)


@functools.cache
def restoring(kind: str, dtype: str, *shape: int) -> tirx.PrimFunc:
    """The kernel from rows of blocks to a matrix (out, in), or to those of experts. One for all layers of that
    shape."""
    block = BLOCK_TYPES[kind]
    *rows, columns = shape
    data = te.placeholder(shape_of(*rows, block.row_bytes(columns)), "uint8", "blocks")

    def element(*place: tirx.Var) -> Expression:
        *row, column = place
        first = column // block.elements * block.size
        return _READS[kind](lambda byte: data[(*row, first + byte)], column % block.elements, block).astype(dtype)

    return restoring_kernel((data,), te.compute(shape_of(*shape), element, name="dequantize"))


def _half(byte: Byte, place: int) -> Expression:
    """The float32 of the two bytes of a float16."""
    bits = byte(place).astype("uint16") | (byte(place + 1).astype("uint16") << tirx.const(8, "uint16"))
    return tirx.reinterpret("float16", bits).astype("float32")


def _signed(byte: Expression) -> Expression:
    return tirx.reinterpret("int8", byte).astype("float32")


def _bits(byte: Expression, shift: Expression | int, count: int) -> Expression:
    """Some bits of a byte, from a place on, in uint8."""
    moved = byte if isinstance(shift, int) and shift == 0 else byte >> _uint8(shift)
    return moved & tirx.const((1 << count) - 1, "uint8")


def _uint8(value: Expression | int) -> Expression:
    return tirx.const(value, "uint8") if isinstance(value, int) else value.astype("uint8")


def _q8_0(byte: Byte, place: Expression, _: BlockType) -> Expression:
    return _signed(byte(2 + place)) * _half(byte, 0)


def _q4_or_5_k(byte: Byte, place: Expression, block: BlockType) -> Expression:
    """d and e, twelve bytes of scales, the fifth bits where there are five, and pairs of parts of 32 in 32 bytes."""
    part = place // 32
    code = _bits(byte(block.size - 128 + part // 2 * 32 + place % 32), part % 2 * 4, 4)
    if block.name == "Q5_K":
        code = code | (_bits(byte(16 + place % 32), part, 1) << tirx.const(4, "uint8"))
    first, four = part < 4, part % 4
    low, high = byte(4 + four), byte(8 + four)  # of the first four parts; above these bits, two of each of the last
    last = byte(12 + four)
    scale = tirx.Select(first, _bits(low, 0, 6), _bits(last, 0, 4) | (_bits(low, 6, 2) << _uint8(4)))
    offset = tirx.Select(first, _bits(high, 0, 6), _bits(last, 4, 4) | (_bits(high, 6, 2) << _uint8(4)))
    step = _half(byte, 0) * scale.astype("float32")
    return code.astype("float32") * step - _half(byte, 2) * offset.astype("float32")


def _q6_k(byte: Byte, place: Expression, _: BlockType) -> Expression:
    """The lowest four bits of 128 numbers in 64 bytes, twice; the highest two in 32, twice; scales of 16; and d."""
    half, part = place // 128, place % 128 // 32
    low = _bits(byte(half * 64 + part % 2 * 32 + place % 32), part // 2 * 4, 4)
    high = _bits(byte(128 + half * 32 + place % 32), part * 2, 2)
    code = low | (high << tirx.const(4, "uint8"))
    step = _half(byte, 208) * _signed(byte(192 + place // 16))
    return (code.astype("float32") - tirx.const(32, "float32")) * step


_READS: dict[str, Callable[[Byte, Expression, BlockType], Expression]] = {
    "Q8_0": _q8_0,
    "Q4_K": _q4_or_5_k,
    "Q5_K": _q4_or_5_k,
    "Q6_K": _q6_k,
}
