"""Axes of matrices and their values: what `matrix`, `exclude` and `include` have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlcbuild.suggestions import did_you_mean
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.schema import (
    COMMON_ATTRIBUTES,
    Attribute,
    AttributeKind,
    AttributeValue,
    RuleSchema,
)
from mlcbuild.workspace.toml import Origin
from mlcbuild.workspace.values import ValueReader, describe

_AXIS_NAME = re.compile(r"[a-z][a-z0-9_]*")
PLACEHOLDER = re.compile(r"\{\{([a-z][a-z0-9_]*)\}\}|\{([a-z][a-z0-9_]*)\}")
_RESERVED = frozenset(attribute.name for attribute in COMMON_ATTRIBUTES)
_FREE_AXIS_KINDS = (
    (bool, AttributeKind.BOOLEAN),
    (int, AttributeKind.INTEGER),
    (str, AttributeKind.STRING),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisValue:
    """One value of an axis: the typed value, the text of its placeholder (None: it has none), and its place."""

    value: AttributeValue
    text: str | None
    origin: Origin

    def is_same(self, other: AxisValue) -> bool:
        """Whether the values are equal: 1 and true are not."""
        return type(self.value) is type(other.value) and self.value == other.value


Cell = Mapping[str, AxisValue]
NO_CELL: Cell = {}
MOST_CELLS = 10_000  # of one table, before `exclude`


def placeholders(text: str) -> frozenset[str]:
    """The placeholders in a text: the words in braces."""
    return frozenset(match[2] for match in PLACEHOLDER.finditer(text) if match[2]) if "{" in text else frozenset()


def name_pattern(template: str) -> re.Pattern[str]:
    """A pattern for every name that a template could give, whatever the values of its axes."""
    position, parts = 0, []
    for match in PLACEHOLDER.finditer(template):
        parts += [re.escape(template[position : match.start()]), ".+"]
        position = match.end()
    return re.compile("".join([*parts, re.escape(template[position:])]))


def placeholders_in(table: Mapping[str, Any]) -> frozenset[str]:
    """Every placeholder in the strings of a target's table, its matrix with `exclude` and `include` left out."""
    found: set[str] = set()
    pending: list[Any] = [value for key, value in table.items() if key not in ("matrix", "exclude", "include")]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            found |= placeholders(value)
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return frozenset(found)


def may_be_axis(name: str, where: Origin, reader: ValueReader) -> bool:
    """Whether a word can name an axis, or a value that `include` adds."""
    if _AXIS_NAME.fullmatch(name) and name not in _RESERVED:
        return True
    reason = "every rule has an attribute of that name" if name in _RESERVED else "it is not an identifier"
    reader.errors.add(f'"{name}" cannot be an axis of the matrix of {reader.owner}: {reason}', where, of_key=True)
    return False


def is_used(
    name: str, used: frozenset[str], schema: RuleSchema, where: Origin, reader: ValueReader, *, what: str = "axis"
) -> bool:
    """Whether an axis has any effect. A misspelt attribute has none, and would go unnoticed."""
    if name in schema.by_name or name in used:
        return True
    reader.errors.add(
        f'{what} "{name}" of {reader.owner} is not an attribute of {schema.name}, '
        f"and no placeholder {{{name}}} uses it",
        where,
        did_you_mean(name, list(schema.by_name)),
        of_key=True,
    )
    return False


def axis_value(
    name: str, raw: Any, attribute: Attribute | None, where: Origin, reader: ValueReader
) -> AxisValue | None:
    if attribute is None:
        kind = next((kind for python_type, kind in _FREE_AXIS_KINDS if type(raw) is python_type), None)
        if kind is None:
            reader.errors.add(
                f'axis "{name}" of {reader.owner} contains {describe(raw)}',
                where,
                "an axis that is not an attribute of the rule may contain strings, integers and booleans",
            )
            return None
        attribute = Attribute(name=name, kind=kind, doc="A free axis.")
    value = reader.read(attribute, raw, where)
    return None if value is None else AxisValue(value=value, text=_text(value), origin=where)


def _text(value: AttributeValue) -> str | None:
    if isinstance(value, Label):
        return value.name
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (str, int)) else None


def shown(value: AttributeValue) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
