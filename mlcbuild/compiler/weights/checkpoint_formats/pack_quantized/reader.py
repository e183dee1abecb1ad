"""Tensors of compressed-tensors in its format pack-quantized.

Form: compressed_tensors/compressors/pack_quantized. A matrix (out, in), whose shape is in `weight_shape`, lies in
`weight_packed` (out, in · bits / 32) of int32, whose words fill up along the inputs with integers that are their value
plus 2^(bits - 1), and `weight_scale` (out, groups), or (out, 1), or (1,). Zero points, if there are any, fill up words
along the outputs: `weight_zero_point` (out · bits / 32, groups). With act-order by groups `weight_g_idx` (in,) says
which group an input is of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mlcbuild.compiler.weights.bit_packing import WORD_BITS, unpacked
from mlcbuild.compiler.weights.checkpoint_formats.pack_quantized.format import FORMAT, PackQuantizedConfiguration
from mlcbuild.compiler.weights.grouped_tensor import GroupedTensor
from mlcbuild.compiler.weights.quantized_source import (
    FormatReader,
    are_neighbours,
    by_module,
    groups_of_inputs,
    require_parts,
    shape_error,
)
from mlcbuild.compiler.weights.source import WeightSource
from mlcbuild.compiler.weights.tensor import Array, Rows, TensorDescription

_OF = "compressed-tensors"
_NEEDED = {
    "weight_packed": "int32",
    "weight_scale": "float16 or bfloat16 or float32",
    "weight_shape": "int64 or int32",
}
_ZEROS, _GROUPS = "weight_zero_point", "weight_g_idx"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedTensor(GroupedTensor):
    """A tensor of the form."""

    def read(self, rows: Rows | None) -> tuple[Array, Array, Array]:
        outputs, inputs = self.description.shape
        begin, end = rows or (0, outputs)
        words = self.source.read(f"{self.module}.weight_packed", rows).data
        codes = unpacked(words, self.bits)[:, :inputs]
        scales = self.source.read(f"{self.module}.weight_scale").data
        scales = np.broadcast_to(scales.reshape(-1, scales.shape[-1]), (outputs, scales.shape[-1]))[begin:end]
        zeros_name = f"{self.module}.{_ZEROS}"
        if zeros_name in self.parts:
            zero_words = self.source.read(zeros_name).data
            zeros = unpacked(np.ascontiguousarray(zero_words.T), self.bits).T[begin:end]
        else:
            zeros = np.full(scales.shape, 1 << (self.bits - 1), np.uint8)
        return codes, np.ascontiguousarray(zeros), np.ascontiguousarray(scales)


def tensors(source: WeightSource, configuration: PackQuantizedConfiguration) -> Iterator[PackedTensor]:
    """What a checkpoint has in the format."""
    for module, parts in by_module(source, (*_NEEDED, _ZEROS, _GROUPS)).items():
        needed = dict(_NEEDED)
        if _ZEROS in parts or configuration.is_asymmetric:
            needed[_ZEROS] = "int32"
        if _GROUPS in parts:
            needed[_GROUPS] = "int32 or int64"
        require_parts(module, parts, needed, of=_OF)
        yield _tensor(source, module, parts, configuration)


def _tensor(
    source: WeightSource,
    module: str,
    parts: Mapping[str, TensorDescription],
    configuration: PackQuantizedConfiguration,
) -> PackedTensor:
    words, scales = parts["weight_packed"], parts["weight_scale"]
    wrong = shape_error(
        module,
        parts.values(),
        of=_OF,
        advice="weight_packed is (out, in · bits / 32), weight_scale (out, groups), weight_shape (2,), and "
        "weight_zero_point (out · bits / 32, groups)",
    )
    if parts["weight_shape"].shape != (2,) or len(words.shape) != 2 or len(scales.shape) not in (1, 2):
        raise wrong
    outputs, inputs = map(int, source.read(f"{module}.weight_shape").data)
    of_words = [bits for bits in configuration.bits if -(-inputs * bits // WORD_BITS) == words.shape[1]]
    groups, scale_rows = scales.shape[-1], scales.elements // max(scales.shape[-1], 1)
    if len(of_words) != 1 or words.shape[0] != outputs or scale_rows not in (1, outputs) or not 1 <= groups <= inputs:
        raise wrong
    (bits,) = of_words
    if _ZEROS in parts and parts[_ZEROS].shape != (-(-outputs * bits // WORD_BITS), groups):
        raise wrong
    if _GROUPS in parts:
        if parts[_GROUPS].shape != (inputs,):
            raise wrong
        group_of = groups_of_inputs(source, parts[_GROUPS].name, groups)
    else:
        group_of = np.arange(inputs) // -(-inputs // groups)
        if inputs % groups and int(group_of[-1]) != groups - 1:
            raise wrong
    return PackedTensor(
        source=source,
        module=module,
        description=TensorDescription(name=f"{module}.weight", dtype=scales.dtype, shape=(outputs, inputs)),
        parts=tuple(one.name for one in parts.values()),
        bits=bits,
        group_of=group_of,
        groups=groups if are_neighbours(group_of, groups) else None,
    )


READER = FormatReader(format=FORMAT, tensors=tensors)
