"""Formats the results of queries as text and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mlcbuild.query.evaluate import kind_of
from mlcbuild.query.nodes import QueryGraph, QueryNode, SourceFile
from mlcbuild.workspace.graph import reachable
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.schema import JsonValue


def dependencies_first(found: Sequence[QueryNode], graph: QueryGraph) -> tuple[QueryNode, ...]:
    """The same nodes, each after its direct and indirect dependencies."""
    wanted = frozenset(found)
    return tuple(node for node in reachable(found, graph.dependencies) if node in wanted)


def label_lines(found: Iterable[QueryNode]) -> list[str]:
    """One label or path of a file a line."""
    return [str(node) for node in found]


def label_kind_lines(found: Iterable[QueryNode], graph: QueryGraph) -> list[str]:
    """`model_library rule //models:x` or `source file models/x.json`, one a line, as Bazel's `label_kind` writes it."""
    return [f"{kind_of(node, graph.loaded)} {node}" for node in found]


def json_records(found: Iterable[QueryNode], graph: QueryGraph) -> list[dict[str, JsonValue]]:
    """One JSON object a target or file.

    `label`, `rule` (of a file "source file"), `attributes` (by name, those that have a value, including defaults),
    `matrix` (the value of each axis, and what `include` adds; empty if no matrix made the target), `tags`,
    `compatible_with` (labels and kinds of platforms; empty: all), `dependencies` (labels of targets),
    `files` (paths of the files that its labels mean), `location` (path, line, column).
    """
    return [_record(node, graph) for node in found]


def _record(node: QueryNode, graph: QueryGraph) -> dict[str, JsonValue]:
    if isinstance(node, SourceFile):
        return {
            "label": node.path,
            "rule": "source file",
            "attributes": {},
            "matrix": {},
            "tags": [],
            "compatible_with": [],
            "dependencies": [],
            "files": [],
            "location": {"path": node.path, "line": 1, "column": 1},
        }
    target = graph.loaded.targets[node]
    location = target.location
    needed = graph.dependencies(node)
    attributes: dict[str, JsonValue] = {}
    for attribute in target.schema.attributes:
        value = target.get(attribute.name)
        if value is not None:
            attributes[attribute.name] = value_json(value)
    return {
        "label": str(target.label),
        "rule": target.rule,
        "attributes": attributes,
        "matrix": {axis: value_json(value) for axis, value in target.cell.items()},
        "tags": list(target.tags),
        "compatible_with": [str(each) for each in target.compatible_with],
        "dependencies": [str(each) for each in needed if isinstance(each, Label)],
        "files": [each.path for each in needed if isinstance(each, SourceFile)],
        "location": {"path": location.path, "line": location.line, "column": location.column},
    }


def value_json(value: object) -> JsonValue:
    """The value of an attribute or of an axis as JSON: a label as its text."""
    if isinstance(value, Label):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [value_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): value_json(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"not a value of an attribute: {value!r}")
