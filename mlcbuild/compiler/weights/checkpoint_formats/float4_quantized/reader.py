"""Tensors of compressed-tensors in floats of 4 bits.

Form: compressed_tensors/compressors/nvfp4 and mxfp4. A matrix (out, in) lies in `weight_packed` (out, in / 2) of bytes,
of which each has two floats E2M1, the first in the low half, and `weight_scale` (out, groups): bytes e that stand for
2^(e - 127) in MXFP4, and E4M3 in NVFP4, divided by `weight_global_scale` (1,). They are restored: MXFP4 to bfloat16,
which has all of its numbers, and NVFP4 to float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mlcbuild.compiler.weights.checkpoint_formats.float4_quantized.format import FORMAT, Float4Configuration
from mlcbuild.compiler.weights.mxfp4 import FLOATS, dequantize
from mlcbuild.compiler.weights.quantized_source import FormatReader, by_module, require_parts, shape_error
from mlcbuild.compiler.weights.source import WeightSource
from mlcbuild.compiler.weights.tensor import BYTES, FLOAT8, Array, Rows, TensorDescription, dtype_of

_OF = "compressed-tensors"
_MXFP4 = {"weight_packed": BYTES, "weight_scale": BYTES}
_NVFP4 = {"weight_packed": BYTES, "weight_scale": FLOAT8, "weight_global_scale": "float32"}
_MXFP4_GROUP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Float4Tensor:
    """A `QuantizedTensor` that can only be restored."""

    source: WeightSource
    module: str
    description: TensorDescription
    parts: tuple[str, ...]
    group_size: int

    groups: int | None = None

    def restored(self, rows: Rows | None) -> Array:
        packed = self.source.read(f"{self.module}.weight_packed", rows).data
        scales = self.source.read(f"{self.module}.weight_scale", rows).data
        if self.group_size == _MXFP4_GROUP:
            return dequantize(packed.reshape(*scales.shape, self.group_size // 2), scales)
        common = self.source.read(f"{self.module}.weight_global_scale").data
        numbers: Array = np.empty((*packed.shape, 2), np.float32)
        numbers[..., 0], numbers[..., 1] = FLOATS[packed & 15], FLOATS[packed >> 4]
        with np.errstate(all="ignore"):  # what is not finite is told by its place
            wide = scales.view(dtype_of(FLOAT8)).astype(np.float32) / common
            numbers = numbers.reshape(*scales.shape, self.group_size) * wide[..., np.newaxis]
        return numbers.reshape(len(packed), -1)


def tensors(source: WeightSource, configuration: Float4Configuration) -> Iterator[Float4Tensor]:
    """What a checkpoint has in the format."""
    size = configuration.group_size
    needed = _MXFP4 if size == _MXFP4_GROUP else _NVFP4
    for module, parts in by_module(source, needed).items():
        require_parts(module, parts, needed, of=_OF)
        packed, scales = parts["weight_packed"], parts["weight_scale"]
        rows, pairs = packed.shape if len(packed.shape) == 2 else (0, 0)
        common = parts.get("weight_global_scale")
        if (
            not rows
            or scales.shape != (rows, 2 * pairs // size)
            or 2 * pairs % size
            or (common and common.elements != 1)
        ):
            raise shape_error(
                module,
                parts.values(),
                of=_OF,
                advice=f"weight_packed is (out, in / 2), weight_scale (out, in / {size}), weight_global_scale (1,)",
            )
        dtype = "bfloat16" if size == _MXFP4_GROUP else "float32"
        yield Float4Tensor(
            source=source,
            module=module,
            description=TensorDescription(name=f"{module}.weight", dtype=dtype, shape=(rows, 2 * pairs)),
            parts=tuple(one.name for one in parts.values()),
            group_size=size,
        )


READER = FormatReader(format=FORMAT, tensors=tensors)
