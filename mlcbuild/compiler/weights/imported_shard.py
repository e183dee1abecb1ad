"""The shards that ImportWeights writes: safetensors with Hugging Face's names of tensors.

What a checkpoint has as integers is kept as such: the tensor `<name>` has the codes, in uint8, and `<name>:zeros` and
`<name>:scales` those of its groups (`weights.integers`). Of floats of 8 bits, `<name>` has these, and `<name>:scales`
their scales (`weights.scaled_floats`). What a matrix is multiplied by may have static scales, from a checkpoint or from
calibration: `<name>:activations` (n,) float32 are those of n equal parts of its columns, of which the last may be
short. A scale of 0 says that there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

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


class ImportedShard:
    """One shard, by Hugging Face's names."""

    def __init__(self, path: Path) -> None:
        self._file = SafetensorsFile(path)
        self._described = self._file.descriptions

    @property
    def descriptions(self) -> Mapping[str, TensorDescription]:
        """The tensors; those that are kept as integers or floats are of the type that they are restored to."""
        return {name: self._description(name) for name in self._described if not name.endswith(_COMPANIONS)}

    def has_integers(self, name: str) -> bool:
        return name + ZEROS in self._described

    def has_floats(self, name: str) -> bool:
        return name + SCALES in self._described and name + ZEROS not in self._described

    def integers(self, name: str) -> IntegerMatrix:
        """A matrix that is kept as integers."""
        codes, zeros, scales = (self._file.read(part).data for part in parts_of(name))
        return IntegerMatrix(codes=codes, zeros=zeros, scales=scales, scale_dtype=self._dtype(name))

    def floats(self, name: str) -> FloatMatrix:
        """A matrix that is kept as floats."""
        bits, scales = (self._file.read(part).data for part in float_parts_of(name))
        return FloatMatrix(bits=bits, scales=scales)

    def read(self, name: str) -> Tensor:
        """The numbers of a tensor, restored if it is kept as integers or floats."""
        if not self.has_integers(name) and not self.has_floats(name):
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
        parts = float_parts_of(name) if self.has_floats(name) else parts_of(name)
        return [self._described[part] for part in (*parts, name + ACTIVATIONS) if part in self._described]

    def _description(self, name: str) -> TensorDescription:
        return TensorDescription(name=name, dtype=self._dtype(name), shape=self._described[name].shape)

    def _dtype(self, name: str) -> str:
        return self._described[name + SCALES if name + SCALES in self._described else name].dtype
