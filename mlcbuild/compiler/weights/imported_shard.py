"""The shards that ImportWeights writes: safetensors with Hugging Face's names of tensors.

What a checkpoint has as integers is kept as such: the tensor `<name>` has the codes, in uint8, and `<name>:zeros` and
`<name>:scales` those of its groups (`weights.integers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcbuild.compiler.weights.checkpoint import Checkpoint
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.safetensors_file import SafetensorsFile, write_safetensors
from mlcbuild.compiler.weights.tensor import BYTES, Tensor, TensorDescription

ZEROS, SCALES = ":zeros", ":scales"


def parts_of(name: str) -> tuple[str, str, str]:
    """The tensors of a shard in which codes, zeros and scales of a matrix lie."""
    return name, name + ZEROS, name + SCALES


class ImportedShard:
    """One shard, by Hugging Face's names."""

    def __init__(self, path: Path) -> None:
        self._file = SafetensorsFile(path)
        self._described = self._file.descriptions

    @property
    def descriptions(self) -> Mapping[str, TensorDescription]:
        """The tensors; those that are kept as integers are of the type that they are restored to."""
        return {
            name: TensorDescription(name=name, dtype=self._dtype(name), shape=described.shape)
            for name, described in self._described.items()
            if not name.endswith((ZEROS, SCALES))
        }

    def has_integers(self, name: str) -> bool:
        return name + SCALES in self._described

    def integers(self, name: str) -> IntegerMatrix:
        """A matrix that is kept as integers."""
        codes, zeros, scales = (self._file.read(part).data for part in parts_of(name))
        return IntegerMatrix(codes=codes, zeros=zeros, scales=scales, scale_dtype=self._dtype(name))

    def read(self, name: str) -> Tensor:
        """The numbers of a tensor, restored if it is kept as integers."""
        if not self.has_integers(name):
            return self._file.read(name)
        return Tensor(description=self.descriptions[name], data=self.integers(name).restored())

    def as_it_is(self, part: str) -> Tensor:
        """A tensor of the file, such as those of a `layout`."""
        return self._file.read(part)

    def layout(self, name: str) -> list[TensorDescription]:
        """The tensors of the file in which one lies."""
        return [self._described[part] for part in (parts_of(name) if self.has_integers(name) else (name,))]

    def _dtype(self, name: str) -> str:
        return self._described[name + SCALES if self.has_integers(name) else name].dtype


def write_shard(path: Path, checkpoint: Checkpoint, names: Sequence[str]) -> None:
    """Write tensors of a checkpoint in the order given, read one at a time."""
    described: list[TensorDescription] = []
    whose: dict[str, str] = {}
    for name in names:
        one = checkpoint.description(name)
        groups = checkpoint.groups(name)
        if groups is None:
            described.append(one)
            continue
        rows = one.shape[:-1]
        whose |= dict.fromkeys(parts_of(name), name)
        described += [
            TensorDescription(name=name, dtype=BYTES, shape=one.shape),
            TensorDescription(name=name + ZEROS, dtype=BYTES, shape=(*rows, groups)),
            TensorDescription(name=name + SCALES, dtype=one.dtype, shape=(*rows, groups)),
        ]
    kept: dict[str, IntegerMatrix] = {}  # the last matrix alone, of which three tensors are written

    def read(tensor: TensorDescription) -> Tensor:
        if tensor.name not in whose:
            return checkpoint.read(tensor.name)
        name = whose[tensor.name]
        if name not in kept:
            kept.clear()
            kept[name] = checkpoint.integers(name)
        matrix = kept[name]
        data = dict(zip(parts_of(name), (matrix.codes, matrix.zeros, matrix.scales), strict=True))[tensor.name]
        return Tensor(description=tensor, data=data)

    write_safetensors(path, described, read)
