"""Cells as grids of text: a row for each combination of all axes but one, and a column for each value of that one."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from mlcbuild.cli.matrix.cell import CellState, MatrixCell, value_text
from mlcbuild.cli.output import text
from mlcbuild.cli.output.terminal import Style
from mlcbuild.figures import shortened_list

WIDTH = 80
_GAP = "  "
_NO_CELL = "·"
_MOST_NAMED = 3
_STATE_WIDTH = 12  # columns for a state
_SHORTEST = 6  # columns of a value that is cut
_WORDS = {
    CellState.BUILT: "built",
    CellState.CACHED: "cached",
    CellState.WOULD_RUN: "would run",
    CellState.FAILED: "failed",
    CellState.SKIPPED: "skipped",
}

Row = tuple[list[str], list[MatrixCell | None]]


def grid_lines(cells: Sequence[MatrixCell], *, style: Style, width: int = WIDTH) -> Iterator[str]:
    """A grid for each table with a matrix, a list of the other targets, the reasons, and what the words mean."""
    tables: dict[object, list[MatrixCell]] = {}
    for cell in cells:
        target = cell.target
        place = target.location
        tables.setdefault((place.path, place.line) if target.axes else None, []).append(cell)
    for key, members in sorted(tables.items(), key=lambda item: item[0] is None):
        yield from _table(members, style, width) if key is not None else _list(members, style)
        yield ""
    yield from _reasons(cells, style, width)
    yield from _legend(cells)


def _table(cells: Sequence[MatrixCell], style: Style, width: int) -> Iterator[str]:
    cells = sorted(cells, key=lambda cell: cell.target.cell_number)
    first = cells[0].target
    yield style.bold(f"{first.location.path}:{first.location.line} {first.rule}")
    axes = first.axes
    shown = {axis: _shown_values([cell.target.cell[axis] for cell in cells]) for axis in axes}
    for column in _columns(axes, shown):
        heads, rows = _rows(cells, axes, column, shown)
        lines = _lines(heads, rows, len(axes) - (column != ""), style)
        if column == "" and _widest(lines) > width:
            longest = max(_SHORTEST, (width - _STATE_WIDTH) // len(axes) - len(_GAP))
            rows = [([text.shortened(name, longest) for name in names], found) for names, found in rows]
            lines = _lines(heads, rows, len(axes), style)
        if column == "" or _widest(lines) <= width:
            yield from (painted for _, painted in lines)
            if any(cell is None for _, found in rows for cell in found):
                yield f"{_NO_CELL}: no cell"
            return


def _widest(lines: Sequence[tuple[str, str]]) -> int:
    return max(text.cell_width(plain) for plain, _ in lines)


def _columns(axes: Sequence[str], shown: Mapping[str, Sequence[str]]) -> list[str]:
    """The axes that may be the columns, the best first: the last one with several values. Then none, "": a list."""
    several = [axis for axis in reversed(axes) if len(set(shown[axis])) > 1]
    return [*several, ""]


def _shown_values(values: Sequence[object]) -> list[str]:
    """The value of an axis in each cell. Of labels with equal names the whole label is shown."""
    meant: dict[str, set[str]] = {}
    for value in values:
        meant.setdefault(value_text(value), set()).add(str(value))
    return [str(value) if len(meant[value_text(value)]) > 1 else value_text(value) for value in values]


def _rows(
    cells: Sequence[MatrixCell], axes: Sequence[str], column: str, shown: Mapping[str, Sequence[str]]
) -> tuple[list[str], list[Row]]:
    others = [axis for axis in axes if axis != column]
    columns = list(dict.fromkeys(shown[column])) if column else ["state"]
    rows: dict[tuple[str, ...], dict[str, MatrixCell]] = {}
    for number, cell in enumerate(cells):
        key = tuple(shown[axis][number] for axis in others)
        rows.setdefault(key, {})[shown[column][number] if column else "state"] = cell
    heads = [*(axis.upper() for axis in others), *(each.upper() if not column else each for each in columns)]
    return heads, [(list(key), [found.get(name) for name in columns]) for key, found in rows.items()]


def _lines(heads: list[str], rows: list[Row], fixed: int, style: Style) -> list[tuple[str, str]]:
    """Each line without and with colour."""
    plain = [heads, *([*names, *(_NO_CELL if cell is None else cell.word for cell in found)] for names, found in rows)]
    widths = [max(map(len, column)) for column in zip(*plain, strict=True)]
    lines = []
    for number, words in enumerate(plain):
        padded = [word.ljust(width) for word, width in zip(words, widths, strict=True)]
        padded[-1] = words[-1]
        painted = list(padded)
        if number:
            for index, cell in enumerate(rows[number - 1][1], start=fixed):
                if cell is not None:
                    painted[index] = _painter(cell.state, style)(words[index]) + padded[index][len(words[index]) :]
        lines.append((_GAP.join(padded), _GAP.join(painted)))
    return lines


def _painter(state: CellState, style: Style) -> Callable[[str], str]:
    match state:
        case CellState.BUILT | CellState.CACHED:
            return style.good
        case CellState.FAILED:
            return style.error
        case CellState.SKIPPED:
            return style.dim
        case _:
            return style.warning


def _list(cells: Sequence[MatrixCell], style: Style) -> Iterator[str]:
    width = max(len("TARGET"), *(len(cell.label) for cell in cells))
    yield f"{'TARGET'.ljust(width)}{_GAP}STATE"
    for cell in cells:
        yield f"{cell.label.ljust(width)}{_GAP}{_painter(cell.state, style)(cell.word)}"


def _reasons(cells: Sequence[MatrixCell], style: Style, width: int) -> Iterator[str]:
    """Why cells failed or are skipped. Cells with one reason share it."""
    grouped: dict[tuple[CellState, str], list[str]] = {}
    for cell in cells:
        if cell.reason:
            grouped.setdefault((cell.state, cell.reason), []).append(cell.label)
    for (state, reason), labels in grouped.items():
        head, indent = f"{_WORDS[state]}: ", "  "
        names = _wrapped(f"{head}{shortened_list(labels, _MOST_NAMED)}", width, indent)
        yield f"{_painter(state, style)(head.rstrip())} {names[0].removeprefix(head)}"
        yield from names[1:]
        yield from _wrapped(f"{indent}{text.printable(reason)}", width, indent)


def _wrapped(line: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(line, max(width, 40), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _legend(cells: Sequence[MatrixCell]) -> Iterator[str]:
    counts = Counter(cell.state for cell in cells)
    counted = ", ".join(f"{counts[state]:,} {word}" for state, word in _WORDS.items() if counts[state])
    yield f"{text.plural(len(cells), 'target')}: {counted}" if cells else "no targets"
    explained = []
    if counts[CellState.WOULD_RUN]:
        explained.append("run N: N actions would run")
    if any(cell.announces_more for cell in cells if cell.state is CellState.WOULD_RUN):
        explained.append("+: and those that they announce")
    if explained:
        yield "; ".join(explained)
