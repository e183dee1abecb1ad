"""A checkpoint of any known format by Hugging Face's names, checked against a model's list of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from mlcbuild.compiler.models.checkpoints.inverse import Chain
from mlcbuild.compiler.models.checkpoints.operations import Operation, Slice
from mlcbuild.compiler.models.checkpoints.parameters import (
    CheckpointTensor,
    JoinedLayout,
    Parameter,
    ParameterList,
    TensorLayout,
)
from mlcbuild.compiler.weights.ggml_blocks import BlockMatrix, BlockSource
from mlcbuild.compiler.weights.ggml_blocks import carried_out as blocks_moved
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.integers import carried_out as integers_moved
from mlcbuild.compiler.weights.operations import carry_out
from mlcbuild.compiler.weights.quantized_source import QuantizedWeights, ScaledSource
from mlcbuild.compiler.weights.scaled_floats import FloatMatrix
from mlcbuild.compiler.weights.scaled_floats import carried_out as floats_moved
from mlcbuild.compiler.weights.source import WeightSource
from mlcbuild.compiler.weights.tensor import STORAGE, Array, Rows, Tensor, TensorDescription
from mlcbuild.errors import StageError

_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What the source has of a tensor, and what makes Hugging Face's of that."""

    tensors: tuple[TensorLayout, ...]
    operations: tuple[Operation, ...] = ()

    def is_in(self, described: Mapping[str, TensorDescription]) -> bool:
        return all(tensor.name in described for tensor in self.tensors)


class Checkpoint:
    """`where` names the source. Raises StageError for tensors that are missing, unknown, of another shape or of a type
    that is not read; all are told."""

    def __init__(self, source: WeightSource, parameters: ParameterList, *, where: str) -> None:
        self._source = source
        self._described = source.descriptions
        self._wanted = {tensor.name: tensor for tensor in sources_of(parameters.parameters)}
        self._places = {name: self._place(tensor) for name, tensor in self._wanted.items()}
        tied = [(one, self._place(one.tensor)) for one in parameters.tied]
        tied = [(one, place) for one, place in tied if place.is_in(self._described)]
        for one, place in tied:
            if not self._places[one.equal_to].is_in(self._described):
                self._places[one.equal_to] = place  # As transformers has it: the one that is there is both.
        _check([*self._places.values(), *(place for _, place in tied)], self._described, parameters, where)
        self.untied = tuple(one for one, place in tied if not self._is_equal(one.equal_to, place))
        """Tensors that should equal another, but are there with numbers of their own."""

    def _place(self, tensor: CheckpointTensor) -> _Place:
        layout: TensorLayout | JoinedLayout | None
        if not self._source.has_gguf_names:
            there = (layout for layout in tensor.others if layout.name in self._described)
            layout = None if tensor.name in self._described else next(there, None)
        elif tensor.gguf is None:
            raise StageError(
                f"the tensor {tensor.name} is not read from GGUF files",
                advice=("import the model from a Hugging Face directory",),
            )
        else:
            layout = tensor.gguf
        if isinstance(layout, JoinedLayout):
            return _Place(tensors=layout.tensors, operations=layout.operations)
        return _Place(tensors=(layout or TensorLayout(name=tensor.name, shape=tensor.shape),))

    def _is_equal(self, name: str, place: _Place) -> bool:
        if self._places[name] == place:
            return True
        one, other = self.read(name), self._read(name, place)
        if one.description.dtype == other.description.dtype:
            return bool(np.array_equal(one.data, other.data))
        return bool(np.array_equal(one.numbers("float32"), other.numbers("float32")))

    def description(self, name: str) -> TensorDescription:
        return self._description(name, self._places[name])

    def read(self, name: str) -> Tensor:
        """One tensor, by Hugging Face's name."""
        return self._read(name, self._places[name])

    def groups(self, name: str) -> int | None:
        """Groups of a row of a matrix that the checkpoint has as integers or floats with scales, which `scaled` reads;
        None for any other tensor."""
        place = self._places[name]
        if not isinstance(self._source, ScaledSource) or place.operations or len(place.tensors) != 1:
            return None
        (tensor,) = place.tensors
        return self._source.groups(tensor.name) if _keeps_rows(tensor) else None

    def block_kind(self, name: str) -> str | None:
        """The type of ggml in whose blocks the checkpoint has a matrix, which `blocks` reads; None for any other."""
        place = self._places[name]
        if not isinstance(self._source, BlockSource) or place.operations or len(place.tensors) != 1:
            return None
        (tensor,) = place.tensors
        return self._source.block_kind(tensor.name) if _keeps_rows(tensor) else None

    def blocks(self, name: str) -> BlockMatrix:
        """One matrix with a `block_kind`, by Hugging Face's name."""
        assert isinstance(self._source, BlockSource)
        (tensor,) = self._places[name].tensors
        rows, operations = _rows_of(tensor)
        found = self._source.blocks(tensor.name, rows)
        return blocks_moved(operations, found) if operations else found

    def has_floats(self, name: str) -> bool:
        """Whether one matrix with `groups` is floats with scales, and not integers."""
        assert isinstance(self._source, ScaledSource)
        (tensor,) = self._places[name].tensors
        return self._source.has_floats(tensor.name)

    def scaled(self, name: str) -> IntegerMatrix | FloatMatrix:
        """One matrix with `groups`, by Hugging Face's name."""
        assert isinstance(self._source, ScaledSource)
        (tensor,) = self._places[name].tensors
        rows, operations = _rows_of(tensor)
        found = self._source.scaled(tensor.name, rows)
        moved: IntegerMatrix | FloatMatrix | None = found
        if operations:
            if isinstance(found, IntegerMatrix):
                moved = integers_moved(operations, [found])
            else:
                moved = floats_moved(operations, [found])
        assert moved is not None  # rows are moved as a whole, and so are their groups
        return moved

    def activation_scales(self, name: str) -> Array | None:
        """The static scale (1,) float32 of what a matrix is multiplied by; None where the checkpoint has none. A layout
        with all experts in one tensor has none for each."""
        place = self._places[name]
        if not isinstance(self._source, QuantizedWeights) or place.operations or len(place.tensors) != 1:
            return None
        (tensor,) = place.tensors
        return None if tensor.operations else self._source.activation_scales(tensor.name)

    def _description(self, name: str, place: _Place) -> TensorDescription:
        dtype = self._described[place.tensors[0].name].dtype
        return TensorDescription(name=name, dtype=dtype, shape=self._wanted[name].shape)

    def _read(self, name: str, place: _Place) -> Tensor:
        data = [self._read_one(tensor) for tensor in place.tensors]
        made = carry_out(place.operations, data) if place.operations else data[0]
        return Tensor(description=self._description(name, place), data=made)

    def _read_one(self, tensor: TensorLayout) -> Array:
        rows, operations = _rows_of(tensor)
        data = self._source.read(tensor.name, rows).data
        try:
            return carry_out(operations, [data]) if operations else data
        except ValueError as error:
            raise StageError(f"the tensor {tensor.name} {error}") from None


def _rows_of(tensor: TensorLayout) -> tuple[Rows | None, tuple[Operation, ...]]:
    """The rows that are read of a tensor, None for all, and what is done to them."""
    match tensor.operations:
        case (Slice(axis=0, begin=begin, end=end), *others):
            return (begin, end), tuple(others)
    return None, tensor.operations


def _keeps_rows(tensor: TensorLayout) -> bool:
    rows, operations = _rows_of(tensor)
    given = tensor.shape if rows is None else (rows[1] - rows[0], *tensor.shape[1:])
    return not operations or Chain(given=(given,), operations=operations).keeps_rows


def sources_of(parameters: Iterable[Parameter]) -> list[CheckpointTensor]:
    """What parameters are made of, each tensor once."""
    return list({tensor.name: tensor for parameter in parameters for tensor in parameter.sources}.values())


def _check(
    wanted: Iterable[_Place], found: Mapping[str, TensorDescription], parameters: ParameterList, where: str
) -> None:
    places = {tensor.name: tensor for place in wanted for tensor in place.tensors}
    problems = [f"missing: {name} {_shape(tensor.shape)}" for name, tensor in places.items() if name not in found]
    problems += [
        f"of another shape: {name} is {_shape(found[name].shape)} and has to be {_shape(tensor.shape)}"
        for name, tensor in places.items()
        if name in found and found[name].shape != tensor.shape
    ]
    problems += [
        f"of a type that is not read: {name} is {found[name].dtype}"
        for name in places
        if name in found and found[name].dtype not in STORAGE
    ]
    problems += [
        f"unknown: {name} {_shape(found[name].shape)}"
        for name in sorted(found)
        if name not in places and not parameters.is_ignored(name)
    ]
    if problems:
        shown = problems[:_SHOWN]
        if len(problems) > _SHOWN:
            shown.append(f"… and {len(problems) - _SHOWN} more")
        count = "1 tensor does" if len(problems) == 1 else f"{len(problems)} tensors do"
        raise StageError(f"{where} does not fit the model's config.json: {count} not match", advice=tuple(shown))


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(str(size) for size in shape) or "scalar"
