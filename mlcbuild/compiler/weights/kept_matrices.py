"""Parameters of an imported shard that are still what a quantized checkpoint has: integers, or floats of 8 bits."""

from __future__ import annotations

from collections.abc import Callable

from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.weights import integers, scaled_floats
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.scaled_floats import FloatMatrix


def _all_sources(has: Callable[[str], bool], part: Parameter) -> bool:
    return all(has(tensor.name) for tensor in part.sources)


def has_integers(shard: ImportedShard, part: Parameter) -> bool:
    """Whether all that a parameter is made of is kept as integers."""
    return _all_sources(shard.has_integers, part)


def has_floats(shard: ImportedShard, part: Parameter) -> bool:
    """Whether all that a parameter is made of is kept as floats of 8 bits."""
    return _all_sources(shard.has_floats, part)


def kept_integers(shard: ImportedShard, part: Parameter) -> IntegerMatrix | None:
    """What operations make of the integers of one of a parameter's `parts`; None where that has no groups with one
    scale each."""
    matrices = [shard.integers(tensor.name) for tensor in part.sources]
    return integers.carried_out(part.operations, matrices) if part.operations else matrices[0]


def kept_floats(shard: ImportedShard, part: Parameter) -> FloatMatrix | None:
    """The same of floats of 8 bits."""
    matrices = [shard.floats(tensor.name) for tensor in part.sources]
    return scaled_floats.carried_out(part.operations, matrices) if part.operations else matrices[0]
