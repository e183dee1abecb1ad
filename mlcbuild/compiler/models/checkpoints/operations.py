"""What is done to a checkpoint's tensors to make a parameter: a closed list, carried out by `weights.operations`.

Each takes the tensors that the one before it made. Numbers are moved and left out; only `AddOne`, `LogOfNegative` and
`UnitRows` change them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Concatenate:
    """All tensors, one after another along an axis, become one."""

    KIND: ClassVar[str] = "concatenate"
    axis: int

    def shapes(self, given: Sequence[Shape]) -> list[Shape]:
        axis = _axis(self.axis, given)
        rests = {(shape[:axis], shape[axis + 1 :]) for shape in given}
        if len(rests) != 1:
            raise ValueError(f"tensors of the shapes {list(given)} cannot be concatenated along axis {axis}")
        ((before, after),) = rests
        return [(*before, sum(shape[axis] for shape in given), *after)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """All tensors, which have one shape, become one with a new axis that counts them."""

    KIND: ClassVar[str] = "stack"
    axis: int

    def shapes(self, given: Sequence[Shape]) -> list[Shape]:
        if len(set(given)) != 1 or not 0 <= self.axis <= len(given[0]):
            raise ValueError(f"tensors of the shapes {list(given)} cannot be stacked along axis {self.axis}")
        return [(*given[0][: self.axis], len(given), *given[0][self.axis :])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Of each tensor, what lies from `begin` to before `end` along an axis: one part of a split."""

    KIND: ClassVar[str] = "slice"
    axis: int
    begin: int
    end: int

    def shapes(self, given: Sequence[Shape]) -> list[Shape]:
        axis = _axis(self.axis, given)
        for shape in given:
            if not 0 <= self.begin < self.end <= shape[axis]:
                raise ValueError(f"axis {axis} of a tensor {shape} has no part from {self.begin} to {self.end}")
        return [(*shape[:axis], self.end - self.begin, *shape[axis + 1 :]) for shape in given]


@dataclass(frozen=True, slots=True, kw_only=True)
class Permute:
    """Each tensor with its axes in another order: axis `i` is the former axis `axes[i]`."""

    KIND: ClassVar[str] = "permute"
    axes: tuple[int, ...]

    def shapes(self, given: Sequence[Shape]) -> list[Shape]:
        for shape in given:
            if sorted(self.axes) != list(range(len(shape))):
                raise ValueError(f"{self.axes} is no order of the axes of a tensor {shape}")
        return [tuple(shape[axis] for axis in self.axes) for shape in given]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshape:
    """The numbers of each tensor, in their order, in another shape."""

    KIND: ClassVar[str] = "reshape"
    shape: Shape

    def shapes(self, given: Sequence[Shape]) -> list[Shape]:
        for shape in given:
            if math.prod(shape) != math.prod(self.shape):
                raise ValueError(f"a tensor {shape} does not fill the shape {self.shape}")
        return [self.shape] * len(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Each tensor becomes several, which are the parts of these sizes along an axis."""

    KIND: ClassVar[str] = "split"
    axis: int
    sizes: tuple[int, ...]

    def shapes(self, given: Sequence[Shape]) -> list[Shape]:
        axis = _axis(self.axis, given)
        for shape in given:
            if sum(self.sizes) != shape[axis] or min(self.sizes) < 1:
                raise ValueError(f"axis {axis} of a tensor {shape} does not split into {self.sizes}")
        return [(*shape[:axis], size, *shape[axis + 1 :]) for shape in given for size in self.sizes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatten:
    """Of each tensor, the first `axes` become one."""

    KIND: ClassVar[str] = "flatten"
    axes: int

    def shapes(self, given: Sequence[Shape]) -> list[Shape]:
        for shape in given:
            if not 1 <= self.axes <= len(shape):
                raise ValueError(f"a tensor {shape} has no {self.axes} axes")
        return [(math.prod(shape[: self.axes]), *shape[self.axes :]) for shape in given]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOne:
    """One is added to every number, or, `times` -1, subtracted, in float32, which is then rounded to the dtype that the
    number had: for the weights of norms that multiply by 1 + w."""

    KIND: ClassVar[str] = "add one"
    times: int = 1

    def shapes(self, given: Sequence[Shape]) -> list[Shape]:
        return list(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOfNegative:
    """Every number x, which has to be negative, becomes log(-x), computed in float64 and rounded once: for the `A_log`
    of a recurrence, of which GGUF files have -exp(A_log). A 0, which is what rounding leaves of a small number, counts
    as the float32 next to it."""

    KIND: ClassVar[str] = "log of negative"

    def shapes(self, given: Sequence[Shape]) -> list[Shape]:
        return list(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRows:
    """Each row of a matrix is divided by its length, or by 1e-12 if that is more, in float32, and rounded to the dtype
    that it had: for heads that a model normalizes as it is loaded."""

    KIND: ClassVar[str] = "unit rows"

    def shapes(self, given: Sequence[Shape]) -> list[Shape]:
        for shape in given:
            if len(shape) != 2:
                raise ValueError(f"a tensor {shape} is no matrix")
        return list(given)


Operation = Concatenate | Stack | Slice | Permute | Reshape | Split | Flatten | AddOne | LogOfNegative | UnitRows


def result_shape(operations: Sequence[Operation], given: Sequence[Shape]) -> Shape:
    """The shape of the one tensor that operations make. Raises ValueError where they make several, or none."""
    return _result_shape(tuple(operations), tuple(given))


@lru_cache(maxsize=1 << 10)  # The experts of a model, of which there may be 10,000, are made alike.
def _result_shape(operations: tuple[Operation, ...], given: tuple[Shape, ...]) -> Shape:
    shapes = list(given)
    for operation in operations:
        shapes = operation.shapes(shapes)
    if len(shapes) != 1:
        raise ValueError(f"{len(shapes)} tensors are left, of the shapes {shapes}; one has to be")
    return shapes[0]


def _axis(axis: int, given: Sequence[Shape]) -> int:
    if not given or not all(0 <= axis < len(shape) for shape in given):
        raise ValueError(f"not every tensor of the shapes {list(given)} has an axis {axis}")
    return axis
