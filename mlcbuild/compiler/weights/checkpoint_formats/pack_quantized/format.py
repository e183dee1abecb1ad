"""Checkpoints of compressed-tensors (llm-compressor, vLLM) in its format pack-quantized: integers of 2, 4 or 8 bits."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.weights.checkpoint_format import CheckpointFormat, refuse_other_fields, refused

BITS = (2, 4, 8)
_FORM = "pack-quantized"
_STRATEGIES = ("group", "channel", "tensor")
# What was told of compression, and which modules were left, as their tensors show.
_TOLD = ("global_compression_ratio", "ignore", "quantization_status", "version", "config_groups")
# How scales were found.
_OF_QUANTIZERS = ("actorder", "block_structure", "observer", "observer_kwargs", "scale_dtype", "zp_dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackQuantizedConfiguration:
    """`bits` are those of all groups of modules; `is_asymmetric` says that all have zero points."""

    bits: tuple[int, ...]
    is_asymmetric: bool


def resolve(table: ConfigReader) -> PackQuantizedConfiguration:
    """Raises StageError for what is computed in another way, and for fields that are not known."""
    sparsity = table.table("sparsity_config").string("format", default="dense") if table.has("sparsity_config") else ""
    if sparsity not in ("", "dense"):
        raise refused(table, "sparsity_config", f'is of the format "{sparsity}"')
    refuse_other_fields(table, *_TOLD, "sparsity_config")
    groups = table.table("config_groups")
    bits, asymmetric = set(), set()
    for name in groups.document:
        group = groups.table(name)
        form = group.string("format", default=_FORM)
        if form != _FORM:
            raise refused(group, "format", f'is "{form}"')
        refuse_other_fields(group, "targets", "weights", "format")
        if group.has("weights"):
            weights = group.table("weights")
            bits.add(_bits(weights))
            asymmetric.add(not weights.boolean("symmetric", default=True))
    if not bits:
        raise refused(table, "config_groups", "has no group with weights")
    return PackQuantizedConfiguration(bits=tuple(sorted(bits)), is_asymmetric=asymmetric == {True})


def _bits(weights: ConfigReader) -> int:
    if (kind := weights.string("type", default="int")) != "int":
        raise refused(weights, "type", f'is "{kind}"; integers are read')
    bits = weights.integer("num_bits", low=1, high=16, default=8)
    if bits not in BITS:
        raise refused(weights, "num_bits", f"is {bits}; read are {', '.join(map(str, BITS))}")
    strategy = weights.string("strategy", default="group" if weights.has("group_size") else "tensor")
    if strategy not in _STRATEGIES:
        raise refused(weights, "strategy", f'is "{strategy}"; read are {", ".join(_STRATEGIES)}')
    known = ("num_bits", "type", "symmetric", "group_size", "strategy", "dynamic")
    if weights.value("dynamic") not in (None, False):
        raise refused(weights, "dynamic", "is set; scales of weights are read")
    refuse_other_fields(weights, *known, *_OF_QUANTIZERS)
    return bits


FORMAT = CheckpointFormat(
    name="pack_quantized",
    method="compressed-tensors",
    forms=(_FORM,),
    configuration=PackQuantizedConfiguration,
    resolve=resolve,
)
