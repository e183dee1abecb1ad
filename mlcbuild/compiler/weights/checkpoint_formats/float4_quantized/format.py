"""Checkpoints of compressed-tensors (llm-compressor, vLLM) in floats of 4 bits: mxfp4-pack-quantized and
nvfp4-pack-quantized."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.weights.checkpoint_format import CheckpointFormat, refuse_other_fields, refused
from mlcbuild.compiler.weights.compressed_tensors import FIELDS, METHOD, groups_of_modules, refuse_dynamic
from mlcbuild.compiler.weights.held_weights import HeldWeights

_FORMS = {"mxfp4-pack-quantized": 32, "nvfp4-pack-quantized": 16}  # with the columns that have a scale
_STRATEGIES = {32: "group", 16: "tensor_group"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Float4Configuration:
    """`group_size` columns have a scale: 32 in MXFP4, 16 in NVFP4."""

    group_size: int


def resolve(table: ConfigReader) -> Float4Configuration:
    """Raises StageError for what is computed in another way, and for fields that are not known."""
    sizes = set[int]()
    for group in groups_of_modules(table, tuple(_FORMS)):
        if group.has("weights"):
            sizes.add(_group_size(group.table("weights")))
    if len(sizes) != 1:
        raise refused(table, "config_groups", "has to have weights in groups of one size")
    return Float4Configuration(group_size=sizes.pop())


def _group_size(weights: ConfigReader) -> int:
    if (kind := weights.string("type", default="int")) != "float":
        raise refused(weights, "type", f'is "{kind}"; floats are read')
    if (bits := weights.integer("num_bits", low=1, high=16, default=8)) != 4:
        raise refused(weights, "num_bits", f"is {bits}; floats of 4 bits are read")
    size = weights.integer("group_size", low=1, high=1 << 16)
    if size not in _STRATEGIES:
        raise refused(weights, "group_size", f"is {size}; read are {', '.join(map(str, sorted(_STRATEGIES)))}")
    strategy = weights.string("strategy", default=_STRATEGIES[size])
    if strategy != _STRATEGIES[size]:
        raise refused(weights, "strategy", f'is "{strategy}"; in groups of {size} it is "{_STRATEGIES[size]}"')
    if not weights.boolean("symmetric", default=True):
        raise refused(weights, "symmetric", "is false; floats have no zero points")
    refuse_dynamic(weights)
    refuse_other_fields(weights, *FIELDS)
    return size


def held(configuration: Float4Configuration) -> HeldWeights:
    group = configuration.group_size
    return HeldWeights(words="MXFP4" if group == 32 else "NVFP4", float_bits=4, group=group)


FORMAT = CheckpointFormat(
    name="float4_quantized",
    method=METHOD,
    forms=tuple(_FORMS),
    configuration=Float4Configuration,
    resolve=resolve,
    held=held,
)
