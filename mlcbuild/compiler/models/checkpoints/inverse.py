"""The way back from a parameter to the tensors of a checkpoint, or of a GGUF file: which operations lead there.

`operations` describes how a parameter is made. Whoever writes a checkpoint of a package's weights undoes the same
operations (`weights.undoing`), so that both ways have one description.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from mlcbuild.compiler.models.checkpoints.operations import (
    AddOne,
    Concatenate,
    Flatten,
    LogOfNegative,
    Operation,
    Permute,
    Reshape,
    Shape,
    Slice,
    Split,
    Stack,
    UnitRows,
)
from mlcbuild.compiler.models.checkpoints.parameters import JoinedLayout, Parameter, TensorLayout

_ONE_BY_ONE = (Permute, Reshape, AddOne, LogOfNegative, Flatten, UnitRows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Tensors of the shapes `given` become one array by `operations`."""

    given: tuple[Shape, ...]
    operations: tuple[Operation, ...]

    @property
    def keeps_rows(self) -> bool:
        """Whether each row along the last axis is moved as a whole, so that blocks of quantized numbers in rows can be
        moved as they are."""
        shapes = list(self.given)
        for operation in self.operations:
            made = operation.shapes(shapes)
            if not all(len(shape) > 1 for shape in (*shapes, *made)) or not _keeps_rows(operation, shapes, made):
                return False
            shapes = made
        return all(len(shape) > 1 for shape in shapes)


def simplified(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """The same, without neighbours that undo each other: a weight to which 1 is subtracted and added is not rounded
    twice."""
    kept: list[Operation] = []
    for operation in operations:
        if kept and _undo_each_other(kept[-1], operation):
            kept.pop()
        else:
            kept.append(operation)
    return tuple(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChain:
    """One source of a parameter. `first` is how each of the `layouts`, tensors of a file, becomes a part. `joined`
    makes one of the parts, with which the parameter's own operations go on."""

    layouts: tuple[TensorLayout, ...]
    first: tuple[Chain, ...]
    joined: Chain


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterChain:
    """How a parameter is made of the tensors of a file: each of `sources` by itself, and by `last` of all of them."""

    sources: tuple[SourceChain, ...]
    last: Chain

    @property
    def keeps_rows(self) -> bool:
        chains = [chain for source in self.sources for chain in (*source.first, source.joined)]
        return all(chain.keeps_rows for chain in (*chains, self.last))


def chain_of(parameter: Parameter, layouts: Sequence[TensorLayout | JoinedLayout]) -> ParameterChain:
    """The way from tensors to a parameter, if a file has the layouts of its sources, in their order."""
    first = tuple(itertools.takewhile(lambda one: isinstance(one, _ONE_BY_ONE), parameter.operations))
    if len(parameter.sources) == 1:
        first = parameter.operations
    sources, shapes = [], []
    for source, layout in zip(parameter.sources, layouts, strict=True):
        sources.append(_source_chain(layout, first))
        shapes.append(_made(first, source.shape))
    return ParameterChain(
        sources=tuple(sources), last=Chain(given=tuple(shapes), operations=parameter.operations[len(first) :])
    )


def _source_chain(layout: TensorLayout | JoinedLayout, then: tuple[Operation, ...]) -> SourceChain:
    if isinstance(layout, TensorLayout):
        operations = simplified((*layout.operations, *then))
        chain = Chain(given=(layout.shape,), operations=operations)
        whole = Chain(given=(_made(operations, layout.shape),), operations=())
        return SourceChain(layouts=(layout,), first=(chain,), joined=whole)
    parts = tuple(_made(tensor.operations, tensor.shape) for tensor in layout.tensors)
    return SourceChain(
        layouts=layout.tensors,
        first=tuple(Chain(given=(tensor.shape,), operations=tensor.operations) for tensor in layout.tensors),
        joined=Chain(given=parts, operations=simplified((*layout.operations, *then))),
    )


def _made(operations: Sequence[Operation], shape: Shape) -> Shape:
    shapes = [shape]
    for operation in operations:
        shapes = operation.shapes(shapes)
    (made,) = shapes
    return made


def _undo_each_other(one: Operation, other: Operation) -> bool:
    if isinstance(one, Permute) and isinstance(other, Permute):
        return [one.axes[axis] for axis in other.axes] == list(range(len(one.axes)))
    return isinstance(one, AddOne) and isinstance(other, AddOne) and one.times + other.times == 0


def _keeps_rows(operation: Operation, given: Sequence[Shape], made: Sequence[Shape]) -> bool:
    match operation:
        case Concatenate(axis=axis) | Slice(axis=axis) | Split(axis=axis):
            return all(axis < len(shape) - 1 for shape in given)
        case Stack(axis=axis):
            return all(axis < len(shape) for shape in given)
        case Permute(axes=axes):
            return axes[-1] == len(axes) - 1
        case Reshape() | Flatten():
            return all(before[-1] == after[-1] for before, after in zip(given, made, strict=True))
        case _:
            return False
