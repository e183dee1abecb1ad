"""AWQ tensors in the layout of AutoAWQ's GEMM kernels.

Form: awq/modules/linear/gemm.py of casper-hansen/AutoAWQ. A matrix (out, in) lies in `qweight` (in, out / 8), `qzeros`
(groups, out / 8), both int32, and `scales` (groups, out). Word j of a row has the outputs 8j … 8j + 7; from its low end
they are 0, 2, 4, 6, 1, 3, 5, 7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mlcbuild.compiler.quantization.awq.scheme import BITS, LANES, PLACES
from mlcbuild.compiler.weights.bit_packing import unpacked
from mlcbuild.compiler.weights.checkpoint_formats.awq.format import FORMAT, AwqConfiguration
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.quantized_source import FormatReader, by_module, require_parts, shape_error
from mlcbuild.compiler.weights.source import WeightSource
from mlcbuild.compiler.weights.tensor import Array, Rows, TensorDescription

_PARTS = {"qweight": "int32", "qzeros": "int32", "scales": "float16 or bfloat16 or float32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AwqTensor:
    """A `QuantizedTensor`."""

    source: WeightSource
    module: str
    description: TensorDescription
    groups: int

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(f"{self.module}.{name}" for name in _PARTS)

    def restored(self, rows: Rows | None) -> Array:
        return self.integers(rows).restored()

    def integers(self, rows: Rows | None) -> IntegerMatrix:
        words, zeros, scales = (self.source.read(name).data for name in self.parts)
        whole = IntegerMatrix(
            codes=_outputs(words),
            zeros=_outputs(zeros),
            scales=np.ascontiguousarray(scales.T),
            scale_dtype=self.description.dtype,
        )
        return whole if rows is None else whole.rows(*rows)


def _outputs(words: Array) -> Array:
    """(inputs, words) → (outputs, inputs) uint8."""
    lanes = unpacked(words, BITS).reshape(len(words), -1, LANES)
    return np.ascontiguousarray(lanes[:, :, PLACES].reshape(len(words), -1).T)


def tensors(source: WeightSource, configuration: AwqConfiguration) -> Iterator[AwqTensor]:
    """What a checkpoint has in AWQ."""
    for module, parts in by_module(source, _PARTS).items():
        require_parts(module, parts, _PARTS, of="AWQ")
        words, zeros, scales = (parts[name] for name in _PARTS)
        inputs, outputs = words.shape[0], words.shape[-1] * LANES
        group = configuration.group_size or inputs
        groups = inputs // group if inputs % group == 0 else 0
        if not groups or (words.shape, zeros.shape, scales.shape) != (
            (inputs, outputs // LANES),
            (groups, outputs // LANES),
            (groups, outputs),
        ):
            raise shape_error(
                module,
                (words, zeros, scales),
                of="AWQ",
                advice=f"of groups of {group}: qweight (in, out / 8), qzeros (in / {group}, out / 8), and scales "
                f"(in / {group}, out)",
            )
        described = TensorDescription(name=f"{module}.weight", dtype=scales.dtype, shape=(outputs, inputs))
        yield AwqTensor(source=source, module=module, description=described, groups=groups)


READER = FormatReader(format=FORMAT, tensors=tensors)
