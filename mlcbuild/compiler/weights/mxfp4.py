"""MXFP4 tensors of Hugging Face's checkpoints, as those of gpt-oss, read as bfloat16, which has all of their numbers.

Form: OCP Microscaling Formats 1.0. A tensor (…, columns) lies in two of bytes: `<name>_blocks` (…, columns / 32, 16),
of which each byte has two numbers of 4 bits, the lower first, and `<name>_scales` (…, columns / 32), whose bytes e
stand for 2^(e - 127), and 255 for no number.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mlcbuild.compiler.weights.source import WeightSource
from mlcbuild.compiler.weights.tensor import BYTES, Array, Rows, Tensor, TensorDescription
from mlcbuild.errors import StageError

BLOCKS, SCALES = "_blocks", "_scales"
_ELEMENTS = 32  # of a block
_POSITIVE = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
FLOATS = np.array([*_POSITIVE, *(-number for number in _POSITIVE)], np.float32)
_BIAS, _NO_NUMBER = 127, 255


def with_mxfp4(source: WeightSource) -> WeightSource:
    """The source, in which tensors `<name>_blocks` of bytes have the shape and the numbers of what is quantized. Raises
    StageError for blocks without scales, and for those of another shape."""
    return MXFP4Weights(source) if any(map(_is_blocks, source.descriptions.values())) else source


def dequantize(blocks: Array, scales: Array) -> Array:
    """Numbers (…, columns) as the bits of bfloat16 (uint16), of `blocks` (…, columns / 32, 16) and `scales`
    (…, columns / 32), which are uint8."""
    numbers = np.empty((*scales.shape, _ELEMENTS), np.float32)
    numbers[..., 0::2], numbers[..., 1::2] = FLOATS[blocks & 15], FLOATS[blocks >> 4]
    with np.errstate(over="ignore"):
        numbers = np.ldexp(numbers, scales.astype(np.int32)[..., None] - _BIAS)
    numbers[scales == _NO_NUMBER] = np.nan
    bits = (numbers.view(np.uint32) >> np.uint32(16)).astype("<u2")
    return bits.reshape(*scales.shape[:-1], -1)


class MXFP4Weights:
    """A checkpoint some of whose tensors are in MXFP4."""

    has_gguf_names = False

    def __init__(self, source: WeightSource) -> None:
        self._source = source
        found = dict(source.descriptions)
        self._quantized = frozenset(name for name, described in found.items() if _is_blocks(described))
        for name in self._quantized:
            found[name] = _described(found[name], found.pop(_scales_of(name), None))
        self._descriptions = found

    @property
    def descriptions(self) -> Mapping[str, TensorDescription]:
        return self._descriptions

    def read(self, name: str, rows: Rows | None = None) -> Tensor:
        """One tensor, or some of its rows: of all experts, one."""
        if name not in self._quantized:
            return self._source.read(name, rows)
        blocks, scales = (self._source.read(part, rows).data for part in (name, _scales_of(name)))
        return Tensor(description=self._descriptions[name].part(rows), data=dequantize(blocks, scales))

    def close(self) -> None:
        self._source.close()


def _is_blocks(described: TensorDescription) -> bool:
    return described.name.endswith(BLOCKS) and described.dtype == BYTES


def _scales_of(name: str) -> str:
    return name.removesuffix(BLOCKS) + SCALES


def _described(blocks: TensorDescription, scales: TensorDescription | None) -> TensorDescription:
    if scales is None:
        raise StageError(f"the tensor {blocks.name} is in MXFP4, and lacks its scales, {_scales_of(blocks.name)}")
    shape = blocks.shape
    if scales.dtype != BYTES or len(shape) < 2 or shape[-1] != _ELEMENTS // 2 or scales.shape != shape[:-1]:
        raise StageError(
            f"the tensor {blocks.name} is no MXFP4: its blocks are {blocks.dtype} {list(shape)}, and its scales "
            f"{scales.dtype} {list(scales.shape)}",
            advice=("blocks of 16 bytes have one scale each, a byte",),
        )
    return TensorDescription(name=blocks.name, dtype="bfloat16", shape=(*shape[:-2], shape[-2] * _ELEMENTS))
