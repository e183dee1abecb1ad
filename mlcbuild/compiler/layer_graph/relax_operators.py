"""How Relax's operators, of which the nn modules of families consist, become nodes of a `LayerGraph`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlcbuild.compiler.layer_graph.building import GraphBuilder
from mlcbuild.compiler.layer_graph.graph import Value

Made = Value | tuple[Value, ...]
Translation = Callable[[GraphBuilder, Sequence[Any], Any], Made]
"""Takes the arguments, values where they are tensors, and the attributes of a call."""


def _of_two(operator: str) -> Translation:
    return lambda build, given, _: build.of_two(operator, given[0], given[1])


def _of_one(operator: str) -> Translation:
    return lambda build, given, _: build.of_one(operator, given[0])


def _permute(build: GraphBuilder, given: Sequence[Any], attributes: Any) -> Value:
    (x,) = given
    axes = attributes.axes
    return build.transpose(x, list(map(int, axes)) if axes is not None else list(reversed(range(len(x.shape)))))


def _split(build: GraphBuilder, given: Sequence[Any], attributes: Any) -> tuple[Value, ...]:
    (x,), axis, cuts = given, int(attributes.axis), attributes.indices_or_sections
    size = x.shape[axis]
    try:
        places = [int(place) for place in cuts]
    except TypeError:
        step = -(-size // int(cuts))
        places = list(range(step, size, step))
    return tuple(build.slice(x, axis, begin, end) for begin, end in zip([0, *places], [*places, size], strict=True))


def _rms_norm(build: GraphBuilder, given: Sequence[Any], attributes: Any) -> Value:
    x, weight = given
    _require_last(attributes, x)
    return build.of_two("multiply", _normed(build, x, float(attributes.epsilon)), weight)


def _layer_norm(build: GraphBuilder, given: Sequence[Any], attributes: Any) -> Value:
    x, weight, bias = given
    _require_last(attributes, x)
    centred = build.of_two("subtract", x, build.mean(x))
    made = _normed(build, centred, float(attributes.epsilon))
    return build.of_two("add", build.of_two("multiply", made, weight), bias)


def _require_last(attributes: Any, x: Value) -> None:
    if [int(axis) % len(x.shape) for axis in attributes.axes] != [len(x.shape) - 1]:
        raise ValueError("a norm is over the last axis alone")


def _normed(build: GraphBuilder, x: Value, epsilon: float) -> Value:
    squares = build.mean(build.of_two("multiply", x, x))
    return build.of_two("divide", x, build.of_one("sqrt", build.of_two("add", squares, build.number(epsilon))))


def _silu(build: GraphBuilder, given: Sequence[Any], _: Any) -> Value:
    return build.of_two("multiply", given[0], build.of_one("sigmoid", given[0]))


def _gelu(build: GraphBuilder, given: Sequence[Any], _: Any) -> Value:
    return _half_and(build, given[0], build.of_one("erf", build.scaled(given[0], math.sqrt(0.5))))


def _gelu_tanh(build: GraphBuilder, given: Sequence[Any], _: Any) -> Value:
    (x,) = given
    cube = build.of_two("multiply", build.of_two("multiply", x, x), x)
    inner = build.scaled(build.of_two("add", x, build.scaled(cube, 0.044715)), math.sqrt(2 / math.pi))
    return _half_and(build, x, build.of_one("tanh", inner))


def _half_and(build: GraphBuilder, x: Value, y: Value) -> Value:
    """x (1 + y) / 2"""
    return build.of_two("multiply", build.scaled(x, 0.5), build.of_two("add", y, build.number(1.0)))


def _clip(build: GraphBuilder, given: Sequence[Any], _: Any) -> Value:
    x, low, high = given
    return build.of_two("minimum", build.of_two("maximum", x, build.number(low)), build.number(high))


def _cast(build: GraphBuilder, given: Sequence[Any], attributes: Any) -> Value:
    if str(attributes.dtype) != "float32":
        raise ValueError(f"layers are exported in float32, and one casts to {attributes.dtype}")
    return build.to_float(given[0])


OPERATORS: Mapping[str, Translation] = {
    "relax.add": _of_two("add"),
    "relax.astype": _cast,
    "relax.clip": _clip,
    "relax.concat": lambda build, given, attributes: build.concat(given[0], int(attributes.axis)),
    "relax.divide": _of_two("divide"),
    "relax.matmul": lambda build, given, _: build.matmul(given[0], given[1]),
    "relax.maximum": _of_two("maximum"),
    "relax.minimum": _of_two("minimum"),
    "relax.multiply": _of_two("multiply"),
    "relax.nn.gelu": _gelu,
    "relax.nn.gelu_tanh": _gelu_tanh,
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.relu": _of_one("relu"),
    "relax.nn.rms_norm": _rms_norm,
    "relax.nn.silu": _silu,
    "relax.permute_dims": _permute,
    "relax.reshape": lambda build, given, _: build.reshape(given[0], given[1]),
    "relax.sigmoid": _of_one("sigmoid"),
    "relax.split": _split,
    "relax.sqrt": _of_one("sqrt"),
    "relax.square": lambda build, given, _: build.of_two("multiply", given[0], given[0]),
    "relax.subtract": _of_two("subtract"),
    "relax.tanh": _of_one("tanh"),
}
"""By Relax's names. An operator that is not here cannot be exported."""
