"""Matrices: one table of a `BUILD.toml` that defines many targets."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlcbuild.suggestions import did_you_mean, known_values
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
_PLACEHOLDER = re.compile(r"\{\{([a-z][a-z0-9_]*)\}\}|\{([a-z][a-z0-9_]*)\}")
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


Cell = Mapping[str, AxisValue]
NO_CELL: Cell = {}
MOST_CELLS = 10_000  # of one table, before `exclude`


def placeholders(text: str) -> frozenset[str]:
    """The placeholders in a text: the words in braces."""
    return frozenset(match[2] for match in _PLACEHOLDER.finditer(text) if match[2]) if "{" in text else frozenset()


def name_pattern(template: str) -> re.Pattern[str]:
    """A pattern for every name that a template could give, whatever the values of its axes."""
    position, parts = 0, []
    for match in _PLACEHOLDER.finditer(template):
        parts += [re.escape(template[position : match.start()]), ".+"]
        position = match.end()
    return re.compile("".join([*parts, re.escape(template[position:])]))


def expand(table: Mapping[str, Any], schema: RuleSchema, origin: Origin, reader: ValueReader) -> Sequence[Cell]:
    """The cells of a table's matrix without the excluded ones. After an error, which is collected, there are none."""
    before = len(reader.errors)
    raw = table["matrix"]
    where = origin.at("matrix")
    if type(raw) is not dict or not raw:
        what = describe(raw) if type(raw) is not dict else "an empty one"
        reader.errors.add(f'"matrix" must be a table of lists, not {what}, in {reader.owner}', where)
        return []
    axes: dict[str, list[AxisValue]] = {}
    used = _placeholders_in(table)
    for name, values in raw.items():
        if _is_axis(name, table, where.at(name), reader) and _is_used(name, used, schema, where.at(name), reader):
            axes[name] = _axis(name, values, schema.by_name.get(name), where.at(name), reader)
    if len(axes) < len(raw) or not all(axes.values()):
        return []
    count = math.prod(map(len, axes.values()))
    if count > MOST_CELLS:
        reader.errors.add(
            f"the matrix of {reader.owner} has {count:,} cells, more than {MOST_CELLS:,}",
            where,
            "give its axes fewer values, or write several tables, each for a part of them",
        )
        return []
    cells = [dict(zip(axes, combination, strict=True)) for combination in itertools.product(*axes.values())]
    if "exclude" in table:
        cells = _without_excluded(cells, axes, table["exclude"], schema, origin.at("exclude"), reader)
    if not cells and len(reader.errors) == before:
        reader.errors.add(f"every cell of the matrix of {reader.owner} is excluded", origin.at("exclude"))
    return cells


def substitute(raw: Any, cell: Cell, attribute: Attribute, origin: Origin, reader: ValueReader) -> Any:
    """Replace the placeholders in every string of a raw value. Errors are collected, and wrong ones
    left as they are.
    """
    if isinstance(raw, str):
        return _fill(raw, cell, attribute, origin, reader) if "{" in raw else raw
    if isinstance(raw, list):
        return [substitute(item, cell, attribute, origin.at(i), reader) for i, item in enumerate(raw)]
    if isinstance(raw, dict):
        return {key: substitute(item, cell, attribute, origin.at(key), reader) for key, item in raw.items()}
    return raw


def _fill(text: str, cell: Cell, attribute: Attribute, origin: Origin, reader: ValueReader) -> str:
    def replacement(match: re.Match[str]) -> str:
        if match[1]:
            return "{" + match[1] + "}"
        name = match[2]
        if name in attribute.placeholders:
            return match[0]
        axis = cell.get(name)
        if axis is None:
            reader.errors.add(
                f'unknown placeholder "{{{name}}}" in "{attribute.name}" of {reader.owner}',
                origin,
                known_values(name, [*cell, *attribute.placeholders]),
                f"to write it literally, double the braces: {{{{{name}}}}}",
            )
            return match[0]
        if axis.text is None:
            reader.errors.add(
                f'"{{{name}}}" in "{attribute.name}" of {reader.owner} is a list or table, not text',
                origin,
            )
            return match[0]
        return axis.text

    return _PLACEHOLDER.sub(replacement, text)


def _is_axis(name: str, table: Mapping[str, Any], where: Origin, reader: ValueReader) -> bool:
    if not _AXIS_NAME.fullmatch(name) or name in _RESERVED:
        reason = "every rule has an attribute of that name" if name in _RESERVED else "it is not an identifier"
        reader.errors.add(f'"{name}" cannot be an axis of the matrix of {reader.owner}: {reason}', where, of_key=True)
        return False
    if name in table:
        reader.errors.add(f'"{name}" of {reader.owner} is set twice: by the matrix and directly', where, of_key=True)
        return False
    return True


def _is_used(name: str, used: frozenset[str], schema: RuleSchema, where: Origin, reader: ValueReader) -> bool:
    """Whether an axis has any effect. A misspelt attribute has none, and would go unnoticed."""
    if name in schema.by_name or name in used:
        return True
    reader.errors.add(
        f'axis "{name}" of {reader.owner} is not an attribute of {schema.name}, and no placeholder {{{name}}} uses it',
        where,
        did_you_mean(name, list(schema.by_name)),
        of_key=True,
    )
    return False


def _placeholders_in(table: Mapping[str, Any]) -> frozenset[str]:
    """Every placeholder in the strings of a target's table, its matrix and `exclude` left out."""
    found: set[str] = set()
    pending: list[Any] = [value for key, value in table.items() if key not in ("matrix", "exclude")]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            found |= placeholders(value)
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return frozenset(found)


def _axis(name: str, values: Any, attribute: Attribute | None, where: Origin, reader: ValueReader) -> list[AxisValue]:
    if type(values) is not list or not values:
        what = describe(values) if type(values) is not list else "an empty one"
        reader.errors.add(f'axis "{name}" must be a list of values, not {what}, in {reader.owner}', where)
        return []
    if len(values) > MOST_CELLS:
        reader.errors.add(
            f'axis "{name}" of {reader.owner} has {len(values):,} values, more than a matrix may have cells', where
        )
        return []
    read: list[AxisValue] = []
    wrong = False
    for index, raw in enumerate(values):
        found = _axis_value(name, raw, attribute, where.at(index), reader)
        if found is None:
            wrong = True
        elif any(type(found.value) is type(other.value) and found.value == other.value for other in read):
            reader.errors.add(f'axis "{name}" of {reader.owner} contains {_shown(found.value)} twice', found.origin)
        else:
            read.append(found)
    return [] if wrong else read


def _axis_value(
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


def _shown(value: AttributeValue) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _without_excluded(
    cells: list[dict[str, AxisValue]],
    axes: Mapping[str, list[AxisValue]],
    raw: Any,
    schema: RuleSchema,
    where: Origin,
    reader: ValueReader,
) -> list[dict[str, AxisValue]]:
    if type(raw) is not list:
        reader.errors.add(f'"exclude" must be a list of tables, not {describe(raw)}, in {reader.owner}', where)
        return cells
    kept = cells
    for index, entry in enumerate(raw):
        wanted = _excluded(entry, axes, schema, where.at(index), reader)
        if wanted is None:
            continue
        remaining = [cell for cell in kept if any(cell[name].value != value for name, value in wanted.items())]
        if len(remaining) == len(kept):
            reader.errors.add(f'this entry of "exclude" of {reader.owner} excludes nothing more', where.at(index))
        kept = remaining
    return kept


def _excluded(
    entry: Any, axes: Mapping[str, list[AxisValue]], schema: RuleSchema, where: Origin, reader: ValueReader
) -> dict[str, AttributeValue] | None:
    """The value of each axis in one entry of `exclude`. None after an error, which is collected."""
    if type(entry) is not dict or not entry:
        what = describe(entry) if type(entry) is not dict else "an empty one"
        reader.errors.add(f'"exclude" must contain tables with values of axes, not {what}, in {reader.owner}', where)
        return None
    wanted: dict[str, AttributeValue] = {}
    for name, raw in entry.items():
        if name not in axes:
            reader.errors.add(
                f'unknown axis "{name}" in "exclude" of {reader.owner}',
                where.at(name),
                known_values(name, axes),
                of_key=True,
            )
            continue
        found = _axis_value(name, raw, schema.by_name.get(name), where.at(name), reader)
        if found is None:
            continue
        if not any(found.value == other.value for other in axes[name]):
            reader.errors.add(
                f'"exclude" of {reader.owner} names {_shown(found.value)}, which is not in the matrix',
                where.at(name),
                known_values(str(found.value), [str(other.value) for other in axes[name]], intro=name),
            )
            continue
        wanted[name] = found.value
    return wanted if len(wanted) == len(entry) else None
