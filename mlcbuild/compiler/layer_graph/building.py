"""Builds the nodes of a `LayerGraph`: one method an operator, each of which knows the shape of what it makes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mlcbuild.compiler.layer_graph.graph import FLOAT, TRUTH, Constant, Node, Value


class GraphBuilder:
    """Nodes and constants in the order in which they were made."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: list[Constant] = []

    def constant(self, numbers: Sequence[float], shape: Sequence[int], dtype: str = FLOAT) -> Value:
        value = Value(name=f"constant{len(self.constants)}", shape=tuple(shape), dtype=dtype)
        self.constants.append(Constant(value=value, numbers=tuple(map(float, numbers))))
        return value

    def number(self, number: float, dtype: str = FLOAT) -> Value:
        return self.constant([number], (1,), dtype)

    def of_two(self, operator: str, left: Value, right: Value) -> Value:
        """An operator of two tensors that broadcast: add, subtract, multiply, divide, minimum, maximum, and, with truth
        values as its result, less_equal, greater and both."""
        dtype = TRUTH if operator in ("less_equal", "greater", "both") else left.dtype
        return self._made(operator, (left, right), np.broadcast_shapes(left.shape, right.shape), dtype)

    def of_one(self, operator: str, x: Value) -> Value:
        """An operator of each element: sqrt, tanh, sigmoid, erf, relu, cos, sin; or softmax."""
        return self._made(operator, (x,), x.shape, x.dtype)

    def scaled(self, x: Value, factor: float) -> Value:
        return self.of_two("multiply", x, self.number(factor))

    def to_float(self, x: Value) -> Value:
        return x if x.dtype == FLOAT else self._made("to_float", (x,), x.shape, FLOAT)

    def where(self, condition: Value, then: Value, otherwise: Value) -> Value:
        shape = np.broadcast_shapes(condition.shape, then.shape, otherwise.shape)
        return self._made("where", (condition, then, otherwise), shape, then.dtype)

    def mean(self, x: Value) -> Value:
        return self._made("mean", (x,), (*x.shape[:-1], 1), x.dtype)

    def matmul(self, left: Value, right: Value) -> Value:
        before = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        return self._made("matmul", (left, right), (*before, left.shape[-2], right.shape[-1]), left.dtype)

    def transpose(self, x: Value, axes: Sequence[int]) -> Value:
        return self._made("transpose", (x,), [x.shape[axis] for axis in axes], x.dtype, axes=tuple(axes))

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        assert math.prod(x.shape) == math.prod(shape)
        return self._made("reshape", (x,), shape, x.dtype, shape=tuple(shape))

    def slice(self, x: Value, axis: int, begin: int, end: int) -> Value:
        axis %= len(x.shape)
        if (begin, end) == (0, x.shape[axis]):
            return x
        shape = [*x.shape[:axis], end - begin, *x.shape[axis + 1 :]]
        return self._made("slice", (x,), shape, x.dtype, axis=axis, begin=begin, end=end)

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        axis %= len(parts[0].shape)
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self._made("concat", tuple(parts), shape, parts[0].dtype, axis=axis)

    def _made(
        self,
        operator: str,
        inputs: Sequence[Value],
        result: Sequence[int],
        dtype: str,
        *,
        axes: tuple[int, ...] = (),
        shape: tuple[int, ...] = (),
        axis: int = 0,
        begin: int = 0,
        end: int = 0,
    ) -> Value:
        output = Value(name=f"v{len(self.nodes)}", shape=tuple(map(int, result)), dtype=dtype)
        given = tuple(value.name for value in inputs)
        self.nodes.append(
            Node(
                operator=operator, inputs=given, output=output, axes=axes, shape=shape, axis=axis, begin=begin, end=end
            )
        )
        return output
