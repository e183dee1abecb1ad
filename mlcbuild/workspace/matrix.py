"""Matrices: one table of a `BUILD.toml` that defines many targets."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlcbuild.suggestions import known_values
from mlcbuild.workspace.matrix_axes import (
    MOST_CELLS,
    NO_CELL,
    PLACEHOLDER,
    AxisValue,
    Cell,
    axis_value,
    is_used,
    may_be_axis,
    placeholders_in,
    shown,
)
from mlcbuild.workspace.matrix_entries import common_axes, with_included, without_excluded
from mlcbuild.workspace.schema import Attribute, RuleSchema
from mlcbuild.workspace.toml import Origin
from mlcbuild.workspace.values import ValueReader, describe


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The cells of a table, and the axes: every cell has a value for each. A cell may have further values."""

    axes: tuple[str, ...] = ()
    cells: Sequence[Cell] = ()


NO_MATRIX = Matrix(cells=(NO_CELL,))


def is_matrix(table: Mapping[str, Any]) -> bool:
    """Whether a table defines cells."""
    return "matrix" in table or "include" in table


def expand(table: Mapping[str, Any], schema: RuleSchema, origin: Origin, reader: ValueReader) -> Matrix:
    """The matrix of a table: the product of its axes, without what it excludes, with what it includes.

    After an error, which is collected, there are no cells.
    """
    before = len(reader.errors)
    axes: dict[str, list[AxisValue]] = {}
    cells: list[dict[str, AxisValue]] = []
    if "matrix" in table:
        axes = _axes(table, schema, origin.at("matrix"), reader)
        cells = _product(table, axes, schema, origin, reader) if axes else []
    if "include" in table and len(reader.errors) == before:
        cells = with_included(cells, tuple(axes), table, schema, origin.at("include"), reader)
    if len(reader.errors) > before:
        # An error in `include` or `exclude` says little of the cells, so that these are checked as well.
        return Matrix(axes=tuple(axes), cells=cells)
    if not cells:
        reader.errors.add(f"every cell of the matrix of {reader.owner} is excluded", origin.at("exclude"))
    return Matrix(axes=tuple(axes) or common_axes(cells), cells=cells)


def _axes(
    table: Mapping[str, Any], schema: RuleSchema, where: Origin, reader: ValueReader
) -> dict[str, list[AxisValue]]:
    """The values of each axis of `matrix`. After an error, which is collected, there are none."""
    raw = table["matrix"]
    if type(raw) is not dict or not raw:
        what = describe(raw) if type(raw) is not dict else "an empty one"
        reader.errors.add(f'"matrix" must be a table of lists, not {what}, in {reader.owner}', where)
        return {}
    axes: dict[str, list[AxisValue]] = {}
    used = placeholders_in(table)
    for name, values in raw.items():
        if _is_axis(name, table, where.at(name), reader) and is_used(name, used, schema, where.at(name), reader):
            axes[name] = _axis(name, values, schema.by_name.get(name), where.at(name), reader)
    return axes if len(axes) == len(raw) and all(axes.values()) else {}


def _product(
    table: Mapping[str, Any],
    axes: Mapping[str, list[AxisValue]],
    schema: RuleSchema,
    origin: Origin,
    reader: ValueReader,
) -> list[dict[str, AxisValue]]:
    """Every combination but the excluded ones."""
    count = math.prod(map(len, axes.values()))
    if count > MOST_CELLS:
        reader.errors.add(
            f"the matrix of {reader.owner} has {count:,} cells, more than {MOST_CELLS:,}",
            origin.at("matrix"),
            "give its axes fewer values, or write several tables, each for a part of them",
        )
        return []
    cells = [dict(zip(axes, combination, strict=True)) for combination in itertools.product(*axes.values())]
    if "exclude" in table:
        cells = without_excluded(cells, axes, table["exclude"], schema, origin.at("exclude"), reader)
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

    return PLACEHOLDER.sub(replacement, text)


def _is_axis(name: str, table: Mapping[str, Any], where: Origin, reader: ValueReader) -> bool:
    if not may_be_axis(name, where, reader):
        return False
    if name in table:
        reader.errors.add(f'"{name}" of {reader.owner} is set twice: by the matrix and directly', where, of_key=True)
        return False
    return True


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
        found = axis_value(name, raw, attribute, where.at(index), reader)
        if found is None:
            wrong = True
        elif any(found.is_same(other) for other in read):
            reader.errors.add(f'axis "{name}" of {reader.owner} contains {shown(found.value)} twice', found.origin)
        else:
            read.append(found)
    return [] if wrong else read
