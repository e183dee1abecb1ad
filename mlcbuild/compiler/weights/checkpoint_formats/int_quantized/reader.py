"""Tensors of compressed-tensors in its format int-quantized: `weight` (out, in) of int8, `weight_scale`, (out, 1) or
(1,), and with static scales of activations `input_scale`, one number: compressors/naive_quantized of
neuralmagic/compressed-tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mlcbuild.compiler.weights.checkpoint_formats.int_quantized.format import FORMAT, IntQuantizedConfiguration
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.quantized_source import FormatReader, by_module, require_parts, shape_error
from mlcbuild.compiler.weights.source import WeightSource
from mlcbuild.compiler.weights.tensor import Array, Rows, TensorDescription

_OF = "compressed-tensors"
_WEIGHT, _SCALE, _STATIC = "weight", "weight_scale", "input_scale"
_SCALES = "float32 or bfloat16 or float16"
_INT8 = "int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Tensor:
    """An `IntegerTensor` of one group a row: signed bytes times the scale of the row, or of the matrix."""

    source: WeightSource
    module: str
    description: TensorDescription
    parts: tuple[str, ...]

    groups = 1

    def restored(self, rows: Rows | None) -> Array:
        return self.integers(rows).restored()

    def integers(self, rows: Rows | None) -> IntegerMatrix:
        codes = self.source.read(f"{self.module}.{_WEIGHT}", rows).data.view(np.uint8) ^ np.uint8(128)
        scales = self.source.read(f"{self.module}.{_SCALE}").data.reshape(-1, 1)
        begin, end = rows or (0, self.description.shape[0])
        of_rows = np.broadcast_to(scales, (self.description.shape[0], 1))[begin:end]
        return IntegerMatrix(
            codes=codes,
            zeros=np.full(of_rows.shape, 128, np.uint8),
            scales=np.ascontiguousarray(of_rows),
            scale_dtype=self.description.dtype,
        )

    def activation_scales(self) -> Array | None:
        name = f"{self.module}.{_STATIC}"
        return self.source.read(name).numbers("float32").reshape(1) if name in self.parts else None


def tensors(source: WeightSource, configuration: IntQuantizedConfiguration) -> Iterator[Int8Tensor]:
    """What a checkpoint has in signed bytes."""
    needed = {_WEIGHT: _INT8, _SCALE: _SCALES, **({_STATIC: _SCALES} if configuration.is_static else {})}
    for module, parts in by_module(source, (_WEIGHT, _SCALE, _STATIC)).items():
        if _SCALE not in parts and parts.get(_WEIGHT) is not None and parts[_WEIGHT].dtype != _INT8:
            continue
        require_parts(module, parts, needed, of=_OF)
        weight, scale = parts[_WEIGHT], parts[_SCALE]
        told = "of a weight (out, in), weight_scale is (out, 1), (1,), or a number, and input_scale a number"
        if len(weight.shape) != 2 or not all(weight.shape) or scale.shape not in ((), (1,), (weight.shape[0], 1)):
            raise shape_error(module, (weight, scale), of=_OF, advice=told)
        if configuration.is_static and parts[_STATIC].elements != 1:
            raise shape_error(module, (parts[_STATIC],), of=_OF, advice=told)
        yield Int8Tensor(
            source=source,
            module=module,
            description=TensorDescription(name=weight.name, dtype=scale.dtype, shape=weight.shape),
            parts=tuple(parts[name].name for name in needed),
        )


READER = FormatReader(format=FORMAT, tensors=tensors)
