"""Checkpoints of compressed-tensors (llm-compressor, vLLM) in its format float-quantized: E4M3 with a scale a row, a
block, or a matrix."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.weights.checkpoint_format import CheckpointFormat, refuse_other_fields, refused
from mlcbuild.compiler.weights.compressed_tensors import FIELDS, METHOD, groups_of_modules, refuse_dynamic
from mlcbuild.compiler.weights.held_weights import HeldWeights

_FORM = "float-quantized"
_STRATEGIES = ("channel", "tensor", "block")
_OF_ACTIVATIONS = ("token", "group")
_OF_STATIC = ("tensor",)
_LARGEST = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatQuantizedConfiguration:
    """`block` (rows, columns) of a matrix have a scale; None for a scale a row or a matrix, as tensors show.
    `is_static`: what a matrix is multiplied by has a static scale."""

    block: tuple[int, int] | None
    is_static: bool = False


def resolve(table: ConfigReader) -> FloatQuantizedConfiguration:
    """Raises StageError for what is computed in another way, and for fields that are not known."""
    blocks = set[tuple[int, int] | None]()
    static = set[bool]()
    for group in groups_of_modules(table, (_FORM,), "input_activations"):
        if group.has("weights"):
            blocks.add(_block(group.table("weights")))
            static.add(group.has("input_activations") and _is_static(group.table("input_activations")))
    if not blocks:
        raise refused(table, "config_groups", "has no group with weights")
    if len(blocks) > 1:
        raise refused(table, "config_groups", "has groups with scales of different blocks")
    if len(static) > 1:
        raise refused(table, "config_groups", "has groups with static scales of activations, and groups without")
    return FloatQuantizedConfiguration(block=blocks.pop(), is_static=static.pop())


def _is_static(activations: ConfigReader) -> bool:
    """Whether activations have a static scale, and not one of each token's own. Raises StageError for other ones."""
    is_static = activations.value("dynamic") in (None, False)
    _check(activations, strategies=_OF_STATIC if is_static else _OF_ACTIVATIONS, dynamic=not is_static)
    return is_static


def _block(weights: ConfigReader) -> tuple[int, int] | None:
    """The block of weights that have a scale for each. Raises StageError for weights that are not read."""
    _check(weights, strategies=_STRATEGIES, dynamic=False)
    if weights.string("strategy", default="tensor") != "block":
        return None
    block = weights.value("block_structure")
    sizes = block if isinstance(block, list) else []
    if len(sizes) != 2 or not all(type(size) is int and 1 <= size <= _LARGEST for size in sizes):
        raise refused(weights, "block_structure", f"is {block!r}; it is two numbers, of rows and columns")
    return sizes[0], sizes[1]


def _check(numbers: ConfigReader, *, strategies: tuple[str, ...], dynamic: bool) -> None:
    """Raises StageError for weights, or activations, that are not floats of 8 bits with scales that are `dynamic`, or
    not, by one of the strategies."""
    if (kind := numbers.string("type", default="int")) != "float":
        raise refused(numbers, "type", f'is "{kind}"; floats are read')
    if (bits := numbers.integer("num_bits", low=1, high=16, default=8)) != 8:
        raise refused(numbers, "num_bits", f"is {bits}; floats of 8 bits are read")
    if not numbers.boolean("symmetric", default=True):
        raise refused(numbers, "symmetric", "is false; floats have no zero points")
    refuse_other_fields(numbers, *FIELDS)
    strategy = numbers.string("strategy", default="tensor")
    if dynamic and numbers.value("dynamic") is not True:
        raise refused(numbers, "dynamic", "is neither true nor false")
    if not dynamic:
        refuse_dynamic(numbers)
    if strategy not in strategies:
        raise refused(numbers, "strategy", f'is "{strategy}"; read are {", ".join(strategies)}')


def held(configuration: FloatQuantizedConfiguration) -> HeldWeights:
    return HeldWeights(words="E4M3 with scales", float_bits=8, block=configuration.block)


FORMAT = CheckpointFormat(
    name="float_quantized",
    method=METHOD,
    forms=(_FORM,),
    configuration=FloatQuantizedConfiguration,
    resolve=resolve,
    held=held,
)
