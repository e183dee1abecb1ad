"""Checkpoints of compressed-tensors (llm-compressor, vLLM) in its format float-quantized: E4M3 with a scale a row, a
block, or a matrix."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.weights.checkpoint_format import CheckpointFormat, refuse_other_fields, refused
from mlcbuild.compiler.weights.compressed_tensors import FIELDS, METHOD, groups_of_modules, refuse_dynamic

_FORM = "float-quantized"
_STRATEGIES = ("channel", "tensor", "block")
_OF_ACTIVATIONS = ("token", "group")
_LARGEST = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatQuantizedConfiguration:
    """`block` (rows, columns) of a matrix have a scale; None for a scale a row or a matrix, as tensors show."""

    block: tuple[int, int] | None


def resolve(table: ConfigReader) -> FloatQuantizedConfiguration:
    """Raises StageError for what is computed in another way, and for fields that are not known."""
    blocks = set[tuple[int, int] | None]()
    for group in groups_of_modules(table, (_FORM,), "input_activations"):
        if group.has("weights"):
            blocks.add(_block(group.table("weights")))
        if group.has("input_activations"):
            _check(group.table("input_activations"), dynamic=True)
    if not blocks:
        raise refused(table, "config_groups", "has no group with weights")
    if len(blocks) > 1:
        raise refused(table, "config_groups", "has groups with scales of different blocks")
    return FloatQuantizedConfiguration(block=blocks.pop())


def _block(weights: ConfigReader) -> tuple[int, int] | None:
    """The block of weights that have a scale for each. Raises StageError for weights that are not read."""
    _check(weights, dynamic=False)
    if weights.string("strategy", default="tensor") != "block":
        return None
    block = weights.value("block_structure")
    sizes = block if isinstance(block, list) else []
    if len(sizes) != 2 or not all(type(size) is int and 1 <= size <= _LARGEST for size in sizes):
        raise refused(weights, "block_structure", f"is {block!r}; it is two numbers, of rows and columns")
    return sizes[0], sizes[1]


def _check(numbers: ConfigReader, *, dynamic: bool) -> None:
    """Raises StageError for weights, or activations, that are `dynamic`, which are not floats of 8 bits."""
    if (kind := numbers.string("type", default="int")) != "float":
        raise refused(numbers, "type", f'is "{kind}"; floats are read')
    if (bits := numbers.integer("num_bits", low=1, high=16, default=8)) != 8:
        raise refused(numbers, "num_bits", f"is {bits}; floats of 8 bits are read")
    if not numbers.boolean("symmetric", default=True):
        raise refused(numbers, "symmetric", "is false; floats have no zero points")
    refuse_other_fields(numbers, *FIELDS)
    strategies = _OF_ACTIVATIONS if dynamic else _STRATEGIES
    strategy = numbers.string("strategy", default="tensor")
    if dynamic and numbers.value("dynamic") is not True:
        raise refused(numbers, "dynamic", "is not true: a token's activations have scales of their own")
    if not dynamic:
        refuse_dynamic(numbers)
    if strategy not in strategies:
        raise refused(numbers, "strategy", f'is "{strategy}"; read are {", ".join(strategies)}')


FORMAT = CheckpointFormat(
    name="float_quantized",
    method=METHOD,
    forms=(_FORM,),
    configuration=FloatQuantizedConfiguration,
    resolve=resolve,
)
