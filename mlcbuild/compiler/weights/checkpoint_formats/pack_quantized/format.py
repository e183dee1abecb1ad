"""Checkpoints of compressed-tensors (llm-compressor, vLLM) in its format pack-quantized: integers of 2, 4 or 8 bits."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.weights.checkpoint_format import CheckpointFormat, refuse_other_fields, refused
from mlcbuild.compiler.weights.compressed_tensors import FIELDS, METHOD, groups_of_modules, refuse_dynamic
from mlcbuild.compiler.weights.held_weights import HeldWeights, words_of_integers

BITS = (2, 4, 8)
_FORM = "pack-quantized"
_STRATEGIES = ("group", "channel", "tensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackQuantizedConfiguration:
    """`bits` are those of all groups of modules; `is_asymmetric` says that all have zero points."""

    bits: tuple[int, ...]
    is_asymmetric: bool


def resolve(table: ConfigReader) -> PackQuantizedConfiguration:
    """Raises StageError for what is computed in another way, and for fields that are not known."""
    bits, asymmetric = set(), set()
    for group in groups_of_modules(table, (_FORM,)):
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
    refuse_dynamic(weights)
    refuse_other_fields(weights, *FIELDS)
    return bits


def held(configuration: PackQuantizedConfiguration) -> HeldWeights:
    bits, zero_points = max(configuration.bits), configuration.is_asymmetric
    return HeldWeights(
        words=words_of_integers(bits, zero_points=zero_points), integer_bits=bits, zero_points=zero_points
    )


FORMAT = CheckpointFormat(
    name="pack_quantized",
    method=METHOD,
    forms=(_FORM,),
    configuration=PackQuantizedConfiguration,
    resolve=resolve,
    held=held,
)
