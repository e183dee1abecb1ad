"""One layer of a model as a graph of a few operators, which other compilers' forms are written from.

Every operator here is one that ONNX, JAX and PyTorch all have with the same meaning; shapes are known, and broadcast as
NumPy's do. `layer.json` is such a graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.compiler import json_values

VERSION = 1
FLOAT, INTEGER, TRUTH = "float32", "int32", "bool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor by its name in the graph."""

    name: str
    shape: tuple[int, ...]
    dtype: str = FLOAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A tensor whose numbers are part of the model's definition, in row-major order."""

    value: Value
    numbers: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A tensor of the checkpoint: `name` is the parameter's below its layer."""

    value: Value
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """`operator` of `inputs`. What it has besides: `axes` of a transpose, `shape` of a reshape, `axis`, `begin` and
    `end` of a slice, `axis` of a concat. `mean` and `softmax` are over the last axis, which `mean` keeps; `both` is the
    logical and."""

    operator: str
    inputs: tuple[str, ...]
    output: Value
    axes: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    axis: int = 0
    begin: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGraph:
    """`prefix` is what names of the layer's parameters begin with in the model. `outputs` have the names that callers
    know them by → names of values."""

    family: str
    prefix: str
    inputs: tuple[Value, ...]
    weights: tuple[Weight, ...]
    constants: tuple[Constant, ...]
    nodes: tuple[Node, ...]
    outputs: Mapping[str, object]


def read_graph(path: Path) -> LayerGraph:
    """The graph in a `layer.json`. Raises StageError for another file."""
    return json_values.read(LayerGraph, path, version=VERSION)


def write_graph(graph: LayerGraph, path: Path) -> None:
    json_values.write(graph, path, version=VERSION)
