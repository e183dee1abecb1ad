"""The entries of `exclude` and `include`, which change the cells of a matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcbuild.suggestions import known_values
from mlcbuild.workspace.matrix_axes import (
    MOST_CELLS,
    AxisValue,
    axis_value,
    is_used,
    may_be_axis,
    placeholders_in,
    shown,
)
from mlcbuild.workspace.schema import COMMON_ATTRIBUTES, COMPATIBLE_WITH, AttributeValue, RuleSchema
from mlcbuild.workspace.toml import Origin
from mlcbuild.workspace.values import ValueReader, describe

(_COMPATIBLE_WITH,) = (each for each in COMMON_ATTRIBUTES if each.name == COMPATIBLE_WITH)
MutableCell = dict[str, AxisValue]


def without_excluded(
    cells: list[MutableCell],
    axes: Mapping[str, list[AxisValue]],
    raw: Any,
    schema: RuleSchema,
    where: Origin,
    reader: ValueReader,
) -> list[MutableCell]:
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
        found = axis_value(name, raw, schema.by_name.get(name), where.at(name), reader)
        if found is None:
            continue
        if not any(found.value == other.value for other in axes[name]):
            reader.errors.add(
                f'"exclude" of {reader.owner} names {shown(found.value)}, which is not in the matrix',
                where.at(name),
                known_values(str(found.value), [str(other.value) for other in axes[name]], intro=name),
            )
            continue
        wanted[name] = found.value
    return wanted if len(wanted) == len(entry) else None


def with_included(
    cells: Sequence[MutableCell],
    axes: Sequence[str],
    table: Mapping[str, Any],
    schema: RuleSchema,
    where: Origin,
    reader: ValueReader,
) -> list[MutableCell]:
    """The cells with what `include` adds to them, and its own ones after them. Wrong entries, whose errors are
    collected, add nothing.

    As in GitHub's matrices an entry adds its further values to the cells whose values of axes it has, and is a cell of
    its own where there are none. Later entries replace added values, but never those of axes, and add nothing to cells
    that entries made. In contrast to GitHub a cell of its own has all axes, so that a misspelt value is no cell.
    """
    raw = table["include"]
    if type(raw) is not list or not raw:
        what = describe(raw) if type(raw) is not list else "an empty one"
        reader.errors.add(f'"include" must be a list of tables, not {what}, in {reader.owner}', where)
        return list(cells)
    used = placeholders_in(table)
    made = [dict(cell) for cell in cells]
    own: list[MutableCell] = []
    for index, entry in enumerate(raw):
        place = where.at(index)
        values = _included(entry, axes, used, schema, place, reader)
        if values is None:
            continue
        chosen = {name: value for name, value in values.items() if name in axes}
        added = {name: value for name, value in values.items() if name not in axes}
        matching = [
            number
            for number, cell in enumerate(cells)
            if all(cell[name].is_same(value) for name, value in chosen.items())
        ]
        absent = [axis for axis in axes if axis not in chosen]
        if matching and not added:
            reader.errors.add(f'this entry of "include" of {reader.owner} adds nothing: its cell is there', place)
        elif matching:
            for number in matching:
                made[number].update(added)
        elif absent:
            reader.errors.add(
                f'this entry of "include" of {reader.owner} matches no cell',
                place,
                f"to add a cell, give it a value for {', '.join(absent)} too",
            )
        else:
            own.append({**{axis: chosen[axis] for axis in axes}, **added})
    if len(made) + len(own) > MOST_CELLS:
        reader.errors.add(
            f"the matrix of {reader.owner} has {len(made) + len(own):,} cells, more than {MOST_CELLS:,}", where
        )
        return []
    return made + own


def common_axes(cells: Sequence[Mapping[str, AxisValue]]) -> tuple[str, ...]:
    """The axes of cells that no `matrix` has made: what all of them have a value for."""
    return tuple(name for name in (cells[0] if cells else ()) if all(name in cell for cell in cells))


def _included(
    entry: Any,
    axes: Sequence[str],
    used: frozenset[str],
    schema: RuleSchema,
    where: Origin,
    reader: ValueReader,
) -> MutableCell | None:
    """The values of one entry of `include`. None after an error, which is collected."""
    if type(entry) is not dict or not entry:
        what = describe(entry) if type(entry) is not dict else "an empty one"
        reader.errors.add(f'"include" must contain tables with values, not {what}, in {reader.owner}', where)
        return None
    values: MutableCell = {}
    for name, raw in entry.items():
        place = where.at(name)
        # The one common attribute that cells may differ in: which platforms they can be built for.
        is_known = (
            name in axes
            or name == COMPATIBLE_WITH
            or (may_be_axis(name, place, reader) and is_used(name, used, schema, place, reader, what="value"))
        )
        attribute = _COMPATIBLE_WITH if name == COMPATIBLE_WITH else schema.by_name.get(name)
        found = axis_value(name, raw, attribute, place, reader) if is_known else None
        if found is not None:
            values[name] = found
    return values if len(values) == len(entry) else None
