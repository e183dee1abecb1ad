"""Formats the results of queries as text and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mlcbuild.workspace.label import Label
from mlcbuild.workspace.loader import LoadedWorkspace
from mlcbuild.workspace.schema import JsonValue
from mlcbuild.workspace.target import Target


def dependencies_first(labels: Iterable[Label], loaded: LoadedWorkspace) -> tuple[Label, ...]:
    """The same labels, each after its direct and indirect dependencies."""
    wanted = dict.fromkeys(labels)
    return tuple(label for label in loaded.closure(wanted) if label in wanted)


def label_lines(labels: Iterable[Label]) -> list[str]:
    """One label a line."""
    return [str(label) for label in labels]


def label_kind_lines(labels: Iterable[Label], loaded: LoadedWorkspace) -> list[str]:
    """`model_library rule //models:x`, one a line, as Bazel's `label_kind` writes it."""
    return [f"{loaded.targets[label].rule} rule {label}" for label in labels]


def json_records(labels: Iterable[Label], loaded: LoadedWorkspace) -> list[dict[str, JsonValue]]:
    """One JSON object a target.

    `label`, `rule`, `attributes` (by name, those that have a value, including defaults), `tags`, `dependencies`
    (labels of targets), `files` (paths of files that labels name), `location` (path, line, column).
    """
    return [_record(loaded.targets[label], loaded) for label in labels]


def _record(target: Target, loaded: LoadedWorkspace) -> dict[str, JsonValue]:
    location = target.location
    referenced = target.referenced_labels()
    attributes: dict[str, JsonValue] = {}
    for attribute in target.schema.attributes:
        value = target.get(attribute.name)
        if value is not None:
            attributes[attribute.name] = _json(value)
    return {
        "label": str(target.label),
        "rule": target.rule,
        "attributes": attributes,
        "tags": list(target.tags),
        "dependencies": [str(label) for label in referenced if label in loaded.targets],
        "files": [label.path for label in referenced if label not in loaded.targets],
        "location": {"path": location.path, "line": location.line, "column": location.column},
    }


def _json(value: object) -> JsonValue:
    if isinstance(value, Label):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"not a value of an attribute: {value!r}")
