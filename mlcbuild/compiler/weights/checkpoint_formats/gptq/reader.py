"""GPTQ tensors in the layout of AutoGPTQ.

Form: auto_gptq/nn_modules/qlinear of AutoGPTQ. A matrix (out, in) lies in `qweight` (in · bits / 32, out), whose words
fill up along the inputs, `qzeros` (groups, out · bits / 32), whose words fill up along the outputs, both int32, and
`scales` (groups, out). `g_idx` (in,) says which group an input is of: with act-order, groups are of inputs that are far
from each other. Zero points are stored less one in the first version of the form, and as they are in the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mlcbuild.compiler.weights.bit_packing import WORD_BITS, unpacked
from mlcbuild.compiler.weights.checkpoint_formats.gptq.format import BITS, FORMAT, GptqConfiguration
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

_NEEDED = {"qweight": "int32", "qzeros": "int32", "scales": "float16 or bfloat16 or float32"}
_GROUPS = "g_idx"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GptqTensor(GroupedTensor):
    """A tensor of the form. `zero_offset` is what zero points are stored less."""

    zero_offset: int

    def read(self, rows: Rows | None) -> tuple[Array, Array, Array]:
        words, zero_words, scales = (self.source.read(f"{self.module}.{name}").data for name in _NEEDED)
        outputs, inputs = self.description.shape
        begin, end = rows or (0, outputs)
        codes = unpacked(np.ascontiguousarray(words[:, begin:end].T), self.bits)[:, :inputs]
        zeros = unpacked(zero_words, self.bits)[:, begin:end].T + np.uint8(self.zero_offset)
        zeros &= np.uint8((1 << self.bits) - 1)
        return codes, np.ascontiguousarray(zeros), np.ascontiguousarray(scales[:, begin:end].T)


def tensors(source: WeightSource, configuration: GptqConfiguration) -> Iterator[GptqTensor]:
    """What a checkpoint has in GPTQ."""
    for module, parts in by_module(source, (*_NEEDED, _GROUPS)).items():
        needed = {**_NEEDED, **({_GROUPS: "int32 or int64"} if _GROUPS in parts or configuration.act_order else {})}
        require_parts(module, parts, needed, of="GPTQ")
        yield _tensor(source, module, parts, configuration)


def _tensor(
    source: WeightSource, module: str, parts: Mapping[str, TensorDescription], configuration: GptqConfiguration
) -> GptqTensor:
    words, zeros, scales = (parts[name] for name in _NEEDED)
    wrong = shape_error(
        module,
        parts.values(),
        of="GPTQ",
        advice="qweight is (in · bits / 32, out), qzeros (groups, out · bits / 32), scales (groups, out), g_idx (in,)",
    )
    if not len(words.shape) == len(zeros.shape) == len(scales.shape) == 2 or not words.elements:
        raise wrong
    groups, outputs = scales.shape
    bits, inputs = configuration.bits, words.shape[0] * WORD_BITS // configuration.bits
    if _GROUPS in parts:  # which tells of modules that have other bits than most
        if len(parts[_GROUPS].shape) != 1 or not parts[_GROUPS].elements:
            raise wrong
        (inputs,) = parts[_GROUPS].shape
        bits = words.shape[0] * WORD_BITS // inputs
    if bits not in BITS or words.shape != (-(-inputs * bits // WORD_BITS), outputs):
        raise wrong
    if zeros.shape != (groups, -(-outputs * bits // WORD_BITS)) or not 1 <= groups <= inputs:
        raise wrong
    if _GROUPS in parts:
        group_of = groups_of_inputs(source, parts[_GROUPS].name, groups)
    else:
        group_of = np.arange(inputs) // (configuration.group_size or inputs)
        if int(group_of[-1]) != groups - 1:
            raise wrong
    return GptqTensor(
        source=source,
        module=module,
        description=TensorDescription(name=f"{module}.weight", dtype=scales.dtype, shape=(outputs, inputs)),
        parts=tuple(one.name for one in parts.values()),
        bits=bits,
        zero_offset=configuration.zero_offset,
        group_of=group_of,
        groups=groups if are_neighbours(group_of, groups) else None,
    )


READER = FormatReader(format=FORMAT, tensors=tensors)
