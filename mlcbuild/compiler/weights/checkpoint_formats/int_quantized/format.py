"""Checkpoints of compressed-tensors (llm-compressor, vLLM) in its format int-quantized: signed bytes with a scale a row
or a matrix, multiplied by signed bytes (W8A8)."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.weights.checkpoint_format import CheckpointFormat, refuse_other_fields, refused
from mlcbuild.compiler.weights.compressed_tensors import FIELDS, METHOD, groups_of_modules, refuse_dynamic
from mlcbuild.compiler.weights.held_weights import HeldWeights

_FORM = "int-quantized"
_STRATEGIES = ("channel", "tensor")
_OF_TOKENS, _OF_STATIC = ("token",), ("tensor",)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntQuantizedConfiguration:
    """`is_static`: what a matrix is multiplied by has a static scale."""

    is_static: bool


def resolve(table: ConfigReader) -> IntQuantizedConfiguration:
    """Raises StageError for what is computed in another way, and for fields that are not known."""
    static = set[bool]()
    for group in groups_of_modules(table, (_FORM,), "input_activations"):
        if group.has("weights"):
            weights = group.table("weights")
            refuse_dynamic(weights)
            _check(weights, _STRATEGIES)
            static.add(group.has("input_activations") and _is_static(group.table("input_activations")))
    if not static:
        raise refused(table, "config_groups", "has no group with weights")
    if len(static) > 1:
        raise refused(table, "config_groups", "has groups with static scales of activations, and groups without")
    return IntQuantizedConfiguration(is_static=static.pop())


def _is_static(activations: ConfigReader) -> bool:
    """Whether activations have a static scale, and not one of each token's own. Raises StageError for other ones."""
    is_static = activations.value("dynamic") in (None, False)
    if not is_static and activations.value("dynamic") is not True:
        raise refused(activations, "dynamic", "is neither true nor false")
    _check(activations, _OF_STATIC if is_static else _OF_TOKENS)
    return is_static


def _check(numbers: ConfigReader, strategies: tuple[str, ...]) -> None:
    """Raises StageError for what is no symmetric signed bytes with scales by one of the strategies."""
    if (kind := numbers.string("type", default="int")) != "int":
        raise refused(numbers, "type", f'is "{kind}"; integers are read')
    if (bits := numbers.integer("num_bits", low=1, high=16, default=8)) != 8:
        raise refused(numbers, "num_bits", f"is {bits}; signed bytes are read")
    if not numbers.boolean("symmetric", default=True):
        raise refused(numbers, "symmetric", "is false; signed bytes without zero points are read")
    refuse_other_fields(numbers, *FIELDS)
    if (strategy := numbers.string("strategy", default="tensor")) not in strategies:
        raise refused(numbers, "strategy", f'is "{strategy}"; read are {", ".join(strategies)}')


def held(_configuration: IntQuantizedConfiguration) -> HeldWeights:
    return HeldWeights(words="signed bytes with a scale a row", integer_bits=8)


FORMAT = CheckpointFormat(
    name="int_quantized",
    method=METHOD,
    forms=(_FORM,),
    configuration=IntQuantizedConfiguration,
    resolve=resolve,
    held=held,
)
