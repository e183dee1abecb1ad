"""The shards that ImportWeights writes: safetensors with Hugging Face's names of tensors.

What a checkpoint has as integers is kept as such: the tensor `<name>` has the codes, in uint8, and `<name>:zeros` and
`<name>:scales` those of its groups (`weights.integers`). Of floats of 8 bits, `<name>` has these, and `<name>:scales`
their scales (`weights.scaled_floats`). Blocks of a GGUF file are the tensor `<name>:<type>`, such as `w:Q4_K`, of
uint8 (…, bytes of a row), without a tensor `<name>` (`weights.ggml_blocks`). What a matrix is multiplied by may have
static scales, from a checkpoint or from calibration: `<name>:activations` (n,) float32 are those of n equal parts of
its columns, of which the last may be short. A scale of 0 says that there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mlcbuild.compiler.weights.block_types import BLOCK_TYPES
from mlcbuild.compiler.weights.ggml_blocks import BlockMatrix
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.safetensors_file import SafetensorsFile
from mlcbuild.compiler.weights.scaled_floats import FloatMatrix
from mlcbuild.compiler.weights.tensor import Array, Rows, Tensor, TensorDescription
from mlcbuild.errors import StageError

ZEROS, SCALES, ACTIVATIONS = ":zeros", ":scales", ":activations"
_COMPANIONS = (ZEROS, SCALES, ACTIVATIONS)


def parts_of(name: str) -> tuple[str, str, str]:
    """The tensors of a shard in which codes, zeros and scales of a matrix lie."""
    return name, name + ZEROS, name + SCALES


def float_parts_of(name: str) -> tuple[str, str]:
    """The tensors of a shard in which floats and scales of a matrix lie."""
    return name, name + SCALES


def block_part_of(name: str, kind: str) -> str:
    """The tensor of a shard in which blocks of a type lie."""
    return f"{name}:{kind}"


class ImportedShard:
    """One shard, by Hugging Face's names."""

    def __init__(self, path: Path) -> None:
        self._file = SafetensorsFile(path)
        self._described = self._file.descriptions
        parts = (part.rpartition(":") for part in self._described)
        self._block_kinds = {name: kind for name, _, kind in parts if kind in BLOCK_TYPES}

    @property
    def descriptions(self) -> Mapping[str, TensorDescription]:
        """The tensors; those that are kept as integers, floats or blocks are of the type that they are restored to."""
        names = (name for name in self._described if not name.endswith(_COMPANIONS))
        own = (name.rpartition(":")[0] if name.rpartition(":")[0] in self._block_kinds else name for name in names)
        return {name: self._description(name) for name in own}

    def block_kind(self, name: str) -> str | None:
        """The type of a matrix that is kept in blocks; None for any other tensor."""
        return self._block_kinds.get(name)

    def blocks(self, name: str) -> BlockMatrix:
        """A matrix that is kept in blocks."""
        kind = self._block_kinds[name]
        return BlockMatrix(kind=kind, data=self._file.read(block_part_of(name, kind)).data)

    def has_integers(self, name: str) -> bool:
        return name + ZEROS in self._described

    def has_floats(self, name: str) -> bool:
        return name + SCALES in self._described and name + ZEROS not in self._described

    def is_kept_as_numbers(self, name: str) -> bool:
        return not (self.has_integers(name) or self.has_floats(name) or name in self._block_kinds)

    def integers(self, name: str) -> IntegerMatrix:
        """A matrix that is kept as integers."""
        codes, zeros, scales = (self._file.read(part).data for part in parts_of(name))
        return IntegerMatrix(codes=codes, zeros=zeros, scales=scales, scale_dtype=self._dtype(name))

    def floats(self, name: str) -> FloatMatrix:
        """A matrix that is kept as floats."""
        bits, scales = (self._file.read(part).data for part in float_parts_of(name))
        return FloatMatrix(bits=bits, scales=scales)

    def read(self, name: str) -> Tensor:
        """The numbers of a tensor, restored if it is kept as integers, floats or blocks."""
        if name in self._block_kinds:
            return Tensor(description=self._description(name), data=self.blocks(name).restored())
        if self.is_kept_as_numbers(name):
            return self._file.read(name)
        matrix = self.integers(name) if self.has_integers(name) else self.floats(name)
        return Tensor(description=self._description(name), data=matrix.restored())

    def rows(self, name: str, rows: Rows) -> Tensor:
        """Some rows of a tensor that is kept as numbers."""
        return self._file.read(name, rows)

    def activation_scales(self, names: Sequence[str]) -> Array | None:
        """The static scales (n,) float32 of what several matrices are multiplied by, where it is the same: the largest
        of theirs. None where one has none, or has them of other columns. Raises StageError for one that is negative or
        not finite."""
        if not all(name + ACTIVATIONS in self._described for name in names):
            return None
        found = [self._file.read(name + ACTIVATIONS).numbers("float32") for name in names]
        for name, scales in zip(names, found, strict=True):
            if (scales < 0).any():
                raise StageError(f"a static scale of the activations of {name} is negative: {scales.min()}")
        if len({scales.shape for scales in found}) > 1:
            return None
        largest: Array = np.maximum.reduce(found)
        return largest

    def as_it_is(self, part: str) -> Tensor:
        """A tensor of the file, such as those of a `layout`."""
        return self._file.read(part)

    def layout(self, name: str) -> list[TensorDescription]:
        """The tensors of the file in which one lies."""
        parts: tuple[str, ...] = float_parts_of(name) if self.has_floats(name) else parts_of(name)
        if name in self._block_kinds:
            parts = (block_part_of(name, self._block_kinds[name]),)
        return [self._described[part] for part in (*parts, name + ACTIVATIONS) if part in self._described]

    def _description(self, name: str) -> TensorDescription:
        if name in self._block_kinds:
            kind = BLOCK_TYPES[self._block_kinds[name]]
            *rows, size = self._described[block_part_of(name, kind.name)].shape
            return TensorDescription(name=name, dtype="float32", shape=(*rows, size // kind.size * kind.elements))
        return TensorDescription(name=name, dtype=self._dtype(name), shape=self._described[name].shape)

    def _dtype(self, name: str) -> str:
        return self._described[name + SCALES if name + SCALES in self._described else name].dtype
