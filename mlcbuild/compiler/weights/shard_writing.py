"""Writes the shards of ImportWeights. Who reads them (`weights.imported_shard`) depends on no format of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcbuild.compiler.weights.block_types import BLOCK_TYPES
from mlcbuild.compiler.weights.checkpoint import Checkpoint
from mlcbuild.compiler.weights.imported_shard import (
    ACTIVATIONS,
    SCALES,
    ZEROS,
    block_part_of,
    float_parts_of,
    parts_of,
)
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.safetensors_file import write_safetensors
from mlcbuild.compiler.weights.scaled_floats import FloatMatrix
from mlcbuild.compiler.weights.tensor import BYTES, FLOAT8, Array, Tensor, TensorDescription


def write_shard(path: Path, checkpoint: Checkpoint, names: Sequence[str]) -> None:
    """Write tensors of a checkpoint in the order given, read one at a time."""
    described: list[TensorDescription] = []
    whose: dict[str, str] = {}
    activations: dict[str, Array] = {}
    blocks: dict[str, str] = {}
    for name in names:
        scales = checkpoint.activation_scales(name)
        if scales is not None:
            activations[name + ACTIVATIONS] = scales
            described.append(TensorDescription(name=name + ACTIVATIONS, dtype="float32", shape=scales.shape))
        one = checkpoint.description(name)
        kind = checkpoint.block_kind(name)
        if kind is not None:
            part = block_part_of(name, kind)
            blocks[part] = name
            row = BLOCK_TYPES[kind].row_bytes(one.shape[-1])
            described.append(TensorDescription(name=part, dtype=BYTES, shape=(*one.shape[:-1], row)))
            continue
        groups = checkpoint.groups(name)
        if groups is None:
            described.append(one)
            continue
        shape = (*one.shape[:-1], groups)
        floats = checkpoint.has_floats(name)
        whose |= dict.fromkeys(parts_of(name), name)
        described.append(TensorDescription(name=name, dtype=FLOAT8 if floats else BYTES, shape=one.shape))
        if not floats:
            described.append(TensorDescription(name=name + ZEROS, dtype=BYTES, shape=shape))
        described.append(TensorDescription(name=name + SCALES, dtype=one.dtype, shape=shape))
    kept: dict[str, IntegerMatrix | FloatMatrix] = {}  # the last matrix alone, of which several tensors are written

    def read(tensor: TensorDescription) -> Tensor:
        if tensor.name in activations:
            return Tensor(description=tensor, data=activations[tensor.name])
        if tensor.name in blocks:
            return Tensor(description=tensor, data=checkpoint.blocks(blocks[tensor.name]).data)
        if tensor.name not in whose:
            return checkpoint.read(tensor.name)
        name = whose[tensor.name]
        if name not in kept:
            kept.clear()
            kept[name] = checkpoint.scaled(name)
        return Tensor(description=tensor, data=_arrays(name, kept[name])[tensor.name])

    write_safetensors(path, described, read)


def _arrays(name: str, matrix: IntegerMatrix | FloatMatrix) -> dict[str, Array]:
    """What is written for a matrix, by the names of tensors."""
    if isinstance(matrix, FloatMatrix):
        return dict(zip(float_parts_of(name), (matrix.bits, matrix.scales), strict=True))
    return dict(zip(parts_of(name), (matrix.codes, matrix.zeros, matrix.scales), strict=True))
