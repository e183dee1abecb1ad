"""Checkpoints of compressed-tensors (llm-compressor, vLLM) in its format float-quantized: E4M3 with a scale a row, or a
matrix."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.weights.checkpoint_format import CheckpointFormat, refuse_other_fields, refused

_FORM = "float-quantized"
_STRATEGIES = ("channel", "tensor")
# What was told of compression, and which modules were left, as their tensors show.
_TOLD = ("global_compression_ratio", "ignore", "quantization_status", "version", "config_groups")
_OF_QUANTIZERS = ("actorder", "block_structure", "observer", "observer_kwargs", "scale_dtype", "zp_dtype")
_KNOWN = ("num_bits", "type", "symmetric", "group_size", "strategy", "dynamic", *_OF_QUANTIZERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatQuantizedConfiguration:
    """Nothing that tensors do not show."""


def resolve(table: ConfigReader) -> FloatQuantizedConfiguration:
    """Raises StageError for what is computed in another way, and for fields that are not known."""
    sparsity = table.table("sparsity_config").string("format", default="dense") if table.has("sparsity_config") else ""
    if sparsity not in ("", "dense"):
        raise refused(table, "sparsity_config", f'is of the format "{sparsity}"')
    refuse_other_fields(table, *_TOLD, "sparsity_config")
    groups = table.table("config_groups")
    found = 0
    for name in groups.document:
        group = groups.table(name)
        form = group.string("format", default=_FORM)
        if form != _FORM:
            raise refused(group, "format", f'is "{form}"')
        refuse_other_fields(group, "targets", "weights", "input_activations", "format")
        if group.has("weights"):
            _check(group.table("weights"), dynamic=False)
            found += 1
        if group.has("input_activations"):
            _check(group.table("input_activations"), dynamic=True)
    if not found:
        raise refused(table, "config_groups", "has no group with weights")
    return FloatQuantizedConfiguration()


def _check(numbers: ConfigReader, *, dynamic: bool) -> None:
    """Raises StageError for weights, or activations, that are `dynamic`, which are not floats of 8 bits."""
    if (kind := numbers.string("type", default="int")) != "float":
        raise refused(numbers, "type", f'is "{kind}"; floats are read')
    if (bits := numbers.integer("num_bits", low=1, high=16, default=8)) != 8:
        raise refused(numbers, "num_bits", f"is {bits}; floats of 8 bits are read")
    if not numbers.boolean("symmetric", default=True):
        raise refused(numbers, "symmetric", "is false; floats have no zero points")
    refuse_other_fields(numbers, *_KNOWN)
    strategies = ("token",) if dynamic else _STRATEGIES
    strategy = numbers.string("strategy", default="tensor")
    if dynamic and numbers.value("dynamic") is not True:
        raise refused(numbers, "dynamic", "is not true: a token's activations have scales of their own")
    if not dynamic and numbers.value("dynamic") not in (None, False):
        raise refused(numbers, "dynamic", "is set; scales of weights are read")
    if strategy not in strategies:
        raise refused(numbers, "strategy", f'is "{strategy}"; read are {", ".join(strategies)}')


FORMAT = CheckpointFormat(
    name="float_quantized",
    method="compressed-tensors",
    forms=(_FORM,),
    configuration=FloatQuantizedConfiguration,
    resolve=resolve,
)
