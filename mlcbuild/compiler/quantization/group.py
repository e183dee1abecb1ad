"""Group quantization in NumPy, bit for bit what MLC-LLM's kernels compute on a CPU.

For a group w of `group_size` weights of a row, all in the model's dtype and each operation rounded to it:

    scale = max|w| / max_int                       max_int = 2^(bits - 1) - 1
    q     = min(max(round(w / scale + max_int), 0), 2 * max_int)
    w'    = (q - max_int) * scale

`round` takes ties to the even integer, as `tirx.round` does in TVM. Where the scale is 0 (all weights are
zero, or too small for a float16 scale) the quotient of a zero is no number; it is stored as 0 there and
reads back as zero all the same. Integers are packed into words from the low end, in the order of the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcbuild.compiler.quantization.scheme import GroupQuantization
from mlcbuild.compiler.weights.tensor import Array
from mlcbuild.errors import StageError

# Rows are done in blocks, so that the temporaries of a large embedding stay small.
_BLOCK_ELEMENTS = 1 << 22


def quantize(weights: Array, group: GroupQuantization, *, name: str) -> tuple[Array, Array]:
    """(out, in) float32 or float16 → packed (out, words) uint32 and scales (out, groups) of the weights'
    dtype.

    Raises StageError naming the tensor where groups do not divide a row.
    """
    rows, columns = weights.shape
    if columns % group.group_size:
        raise StageError(
            f"{name} has {columns} columns, which groups of {group.group_size} do not divide",
            advice=("choose a quantization without groups, such as q0f16 or q0f32",),
        )
    groups = columns // group.group_size
    packed = np.empty((rows, groups * group.words_per_group), np.uint32)
    scales = np.empty((rows, groups), weights.dtype)
    step = max(1, _BLOCK_ELEMENTS // max(columns, 1))
    for begin in range(0, rows, step):
        block = weights[begin : begin + step].reshape(-1, groups, group.group_size)
        integers, scale = _quantize_groups(block, group)
        packed[begin : begin + step] = pack(integers.reshape(-1, columns), group)
        scales[begin : begin + step] = scale
    return packed, scales


def dequantize(packed: Array, scales: Array, group: GroupQuantization) -> Array:
    """Packed (out, words) uint32 and scales (out, groups) → (out, in) of the scales' dtype."""
    rows, groups = scales.shape
    integers = unpack(packed, group).astype(scales.dtype).reshape(rows, groups, group.group_size)
    numbers: Array = (integers - scales.dtype.type(group.max_int)) * scales[:, :, np.newaxis]
    return numbers.reshape(rows, groups * group.group_size)


def pack(integers: Array, group: GroupQuantization) -> Array:
    """(rows, columns) of unsigned integers below 2^bits → (rows, words) uint32."""
    rows = integers.shape[0]
    lanes = integers.astype(np.uint32, copy=False).reshape(rows, -1, group.elements_per_word)
    packed = np.zeros(lanes.shape[:2], np.uint32)
    for lane in range(group.elements_per_word):
        packed |= lanes[:, :, lane] << np.uint32(lane * group.bits)
    return packed


def unpack(packed: Array, group: GroupQuantization) -> Array:
    """The inverse of `pack`."""
    rows, words = packed.shape
    shifts = np.arange(group.elements_per_word, dtype=np.uint32) * np.uint32(group.bits)
    lanes: Array = (packed[:, :, np.newaxis] >> shifts) & np.uint32((1 << group.bits) - 1)
    return lanes.reshape(rows, words * group.elements_per_word)


def _quantize_groups(block: Array, group: GroupQuantization) -> tuple[Array, Array]:
    """(rows, groups, group_size) → integers of the same shape, and scales (rows, groups)."""
    # NumPy's float16 arithmetic is slow. A quotient or sum of two float16 numbers, computed in float32 and rounded
    # to float16, is the correctly rounded one: float32 has the 2 × 11 + 2 bits that this takes.
    wide = block.astype(np.float32, copy=False)
    max_int = np.float32(group.max_int)
    scale = (np.abs(wide).max(axis=2) / max_int).astype(block.dtype)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotient = _rounded(wide / scale.astype(np.float32, copy=False)[:, :, np.newaxis], block.dtype)
        shifted = np.rint(_rounded(quotient + max_int, block.dtype))
    clipped = np.clip(shifted, 0, 2 * group.max_int)
    return np.nan_to_num(clipped, copy=False, nan=0.0).astype(np.uint32), scale


def _rounded(numbers: Array, dtype: np.dtype[Any]) -> Array:
    """float32 numbers rounded to a type, as float32."""
    return numbers if dtype == np.float32 else numbers.astype(dtype).astype(np.float32)
