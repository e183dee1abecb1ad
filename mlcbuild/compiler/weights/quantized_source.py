"""A checkpoint whose weights are quantized, as a checkpoint of the weights that these stand for.

A format's reader finds the tensors that are quantized, each of which lies in several (`<module>.qweight`, …); here they
become one by the name and shape that it has in a checkpoint that is not quantized. Tensors that are not quantized, such
as those of `modules_to_not_convert`, are read as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mlcbuild.compiler import json_values
from mlcbuild.compiler.models.checkpoints.parameters import QuantizedCheckpoint
from mlcbuild.compiler.weights.checkpoint_format import AnyFormat
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.scaled_floats import FloatMatrix
from mlcbuild.compiler.weights.source import WeightSource
from mlcbuild.compiler.weights.tensor import Array, Rows, Tensor, TensorDescription
from mlcbuild.errors import InternalError, StageError


class QuantizedTensor(Protocol):
    """A tensor that a checkpoint has in quantized form."""

    @property
    def description(self) -> TensorDescription:
        """What it stands for: name and shape of the tensor that is not quantized, and the type that it is restored
        to."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The tensors of the checkpoint that it lies in."""

    @property
    def groups(self) -> int | None:
        """Groups of a row, each with a scale, of an `IntegerTensor` or a `FloatTensor`; None for a tensor that can only
        be restored."""

    def restored(self, rows: Rows | None) -> Array:
        """Its numbers, of the described type; of a part, those of some rows."""


@runtime_checkable
class IntegerTensor(QuantizedTensor, Protocol):
    """A quantized tensor that is integers with scales: `groups` are those of `integers`."""

    def integers(self, rows: Rows | None) -> IntegerMatrix:
        """What `restored` rounds, if there are `groups`."""


@runtime_checkable
class MultipliedTensor(QuantizedTensor, Protocol):
    """A quantized tensor of a format that says how what it is multiplied by is rounded."""

    def activation_scales(self) -> Array | None:
        """The static scale (1,) float32 of what the matrix is multiplied by; None for scales of each token's own."""


@runtime_checkable
class FloatTensor(MultipliedTensor, Protocol):
    """A quantized tensor that is floats of 8 bits with scales: `groups` are those of `floats`."""

    def floats(self, rows: Rows | None) -> FloatMatrix:
        """What `restored` multiplies, if there are `groups`."""


@runtime_checkable
class ScaledSource(Protocol):
    """A checkpoint some of whose tensors are integers, or floats of 8 bits, with scales."""

    def groups(self, name: str) -> int | None:
        """Groups of a row of a tensor that is integers or floats with scales; None for any other."""

    def scaled(self, name: str, rows: Rows | None = None) -> IntegerMatrix | FloatMatrix:
        """A tensor with `groups`, or some of its rows."""

    def has_floats(self, name: str) -> bool:
        """Whether a tensor with `groups` is floats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatReader:
    """A format's `READER`: `tensors(source, configuration)` finds what is quantized in a checkpoint. It raises
    StageError for tensors without what belongs to them, and for those of wrong shapes or types."""

    format: AnyFormat
    tensors: Callable[[WeightSource, Any], Iterable[QuantizedTensor]]


class QuantizedWeights:
    """A `WeightSource` with the tensors that quantized ones stand for. Raises StageError for a tensor that is there in
    both forms."""

    has_gguf_names = False

    def __init__(self, source: WeightSource, tensors: Iterable[QuantizedTensor]) -> None:
        self._source = source
        self._quantized = {tensor.description.name: tensor for tensor in tensors}
        found = dict(source.descriptions)
        for tensor in self._quantized.values():
            for part in tensor.parts:
                found.pop(part, None)
        for name, tensor in self._quantized.items():
            if name in found:
                raise StageError(f"the tensor {name} is there as it is, and quantized, as {', '.join(tensor.parts)}")
            found[name] = tensor.description
        self._descriptions = found

    @property
    def descriptions(self) -> Mapping[str, TensorDescription]:
        return self._descriptions

    def read(self, name: str, rows: Rows | None = None) -> Tensor:
        if name not in self._quantized:
            return self._source.read(name, rows)
        tensor = self._quantized[name]
        return Tensor(description=tensor.description.part(rows), data=tensor.restored(rows))

    def groups(self, name: str) -> int | None:
        """Groups of a row of a tensor that is integers or floats with scales; None for any other."""
        return self._quantized[name].groups if name in self._quantized else None

    def scaled(self, name: str, rows: Rows | None = None) -> IntegerMatrix | FloatMatrix:
        """A tensor with `groups`."""
        tensor = self._quantized[name]
        if isinstance(tensor, FloatTensor):
            return tensor.floats(rows)
        if isinstance(tensor, IntegerTensor):
            return tensor.integers(rows)
        raise InternalError(f"{name} has groups, and neither integers nor floats")

    def activation_scales(self, name: str) -> Array | None:
        """The static scale (1,) float32 of what a matrix is multiplied by; None where the checkpoint has none."""
        tensor = self._quantized.get(name)
        return tensor.activation_scales() if isinstance(tensor, MultipliedTensor) else None

    def has_floats(self, name: str) -> bool:
        """Whether a tensor with `groups` is floats."""
        return isinstance(self._quantized[name], FloatTensor)

    def close(self) -> None:
        self._source.close()


def with_quantized(
    source: WeightSource, quantized: QuantizedCheckpoint | None, readers: Iterable[FormatReader]
) -> WeightSource:
    """The source of a model whose weights are `quantized`, read by its format's reader."""
    if quantized is None or source.has_gguf_names:
        return source
    for reader in readers:
        if reader.format.name == quantized.format:
            kind = reader.format.configuration
            configuration = json_values.decode(kind, quantized.configuration, where="quantization_config")
            return QuantizedWeights(source, reader.tensors(source, configuration))
    raise InternalError(f"the format {quantized.format} of checkpoints has no reader.py, or was not given")


def by_module(source: WeightSource, suffixes: Iterable[str]) -> Mapping[str, Mapping[str, TensorDescription]]:
    """Tensors `<module>.<suffix>` by module and suffix."""
    found: dict[str, dict[str, TensorDescription]] = {}
    wanted = frozenset(suffixes)
    for name, described in source.descriptions.items():
        module, _, suffix = name.rpartition(".")
        if suffix in wanted:
            found.setdefault(module, {})[suffix] = described
    return found


def require_parts(module: str, parts: Mapping[str, TensorDescription], needed: Mapping[str, str], *, of: str) -> None:
    """Raises StageError where a quantized module lacks one of the tensors `needed`, or has it in another type."""
    missing = [f"{module}.{name}" for name in needed if name not in parts]
    if missing:
        raise StageError(f"the module {module} is quantized by {of}, and lacks {', '.join(missing)}")
    wrong = [
        f"{parts[name].name} is {parts[name].dtype} and has to be {dtype}"
        for name, dtype in needed.items()
        if parts[name].dtype not in dtype.split(" or ")
    ]
    if wrong:
        raise StageError(f"the module {module} is not as {of} has it: {'; '.join(wrong)}")


def shape_error(module: str, parts: Iterable[TensorDescription], *, of: str, advice: str) -> StageError:
    """The error for a quantized module whose tensors do not fit each other."""
    shapes = ", ".join(f"{one.name.rpartition('.')[2]} {list(one.shape)}" for one in parts)
    return StageError(f"the module {module} is not as {of} has it: {shapes}", advice=(advice,))


def groups_of_inputs(source: WeightSource, name: str, groups: int) -> Array:
    """The group (in,) int64 of each input, as the tensor `name` has it. Raises StageError for one that there is not."""
    group_of: Array = source.read(name).data.astype(np.int64)
    wrong = (group_of < 0) | (group_of >= groups)
    if wrong.any():
        place = int(np.argmax(wrong))
        raise StageError(
            f"the tensor {name} says that input {place} is of group {int(group_of[place])}; there are "
            f"groups 0 to {groups - 1}"
        )
    return group_of


def are_neighbours(group_of: Array, groups: int) -> bool:
    """Whether the inputs of each group lie side by side, and are as many as those of any other."""
    return len(group_of) % groups == 0 and np.array_equal(
        group_of, np.arange(len(group_of)) // (len(group_of) // groups)
    )
