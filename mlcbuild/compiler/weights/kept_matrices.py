"""Parameters of an imported shard that are still what a quantized checkpoint has: integers, floats of 8 bits, or
blocks of a GGUF file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.weights import ggml_blocks, integers, scaled_floats
from mlcbuild.compiler.weights.block_types import BLOCK_TYPES
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.scaled_floats import FloatMatrix
from mlcbuild.compiler.weights.tensor import Array


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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRows:
    """Rows of a matrix (…, columns) in blocks of one type: `data` (…, bytes of a row) has those that `are_kept` (…)."""

    data: Array
    are_kept: Array


def has_blocks(shard: ImportedShard, part: Parameter) -> bool:
    """Whether something that a parameter is made of is kept in blocks."""
    return any(shard.block_kind(tensor.name) is not None for tensor in part.sources)


def kept_blocks(shard: ImportedShard, part: Parameter, kind: str) -> KeptRows | None:
    """The rows of one of a parameter's `parts` that are kept in blocks of a type; None where operations do not move
    rows as a whole, or there are no such rows."""
    kinds = [shard.block_kind(tensor.name) for tensor in part.sources]
    shapes = [tensor.shape for tensor in part.sources]
    if kind not in kinds or not ggml_blocks.moves_rows(part.operations, shapes):
        return None
    size = BLOCK_TYPES[kind].row_bytes(shapes[0][-1])
    if any(shape[-1] != shapes[0][-1] for shape in shapes):
        return None
    rows, kept = [], []
    for tensor, own in zip(part.sources, kinds, strict=True):
        count = int(np.prod(tensor.shape[:-1], dtype=np.int64))
        kept.append(np.full(count, own == kind))
        data = shard.blocks(tensor.name).data if own == kind else np.zeros((count, size), np.uint8)
        rows.append(data.reshape(count, size))
    numbers = ggml_blocks.rows_of(part.operations, shapes)
    return KeptRows(data=np.concatenate(rows)[numbers], are_kept=np.concatenate(kept)[numbers])
