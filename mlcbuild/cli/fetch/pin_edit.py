"""Writes pins such as `sha256 = "…"` into the text of a BUILD.toml, and changes nothing else in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcbuild.errors import InternalError

_NEWLINE = b"\n"

Pins = Mapping[str, str]
"""The attributes of one table that are set: name → value."""


def with_pins(text: str, pins: Mapping[tuple[str, int], Pins]) -> str:
    """`text`, a BUILD.toml file, with attributes of some targets set: (rule, index of its table) → pins.

    An existing value is replaced between its quotes. A new one becomes the last line of the table's own keys.
    """
    import toml_rs

    document = toml_rs.load_with_metadata(text)
    lines = text.encode().splitlines(keepends=True)
    tables = [(document.meta["nodes"][rule]["value"][index]["value"], found) for (rule, index), found in pins.items()]
    # From the end of the file to its beginning: an inserted line moves only what is already done.
    for table, found in sorted(tables, key=lambda item: _last_line(item[0]), reverse=True):
        old = [(name, value) for name, value in found.items() if name in table]
        new = [(name, value) for name, value in found.items() if name not in table]
        # New lines follow all old ones, and each is put before those that were put there.
        for name, value in (*reversed(new), *old):
            _set_pin(lines, table, name, value)
    changed = b"".join(lines).decode()
    _check(text, changed, pins)
    return changed


def _set_pin(lines: list[bytes], table: Mapping[str, Any], name: str, value: str) -> None:
    quoted = f'"{value}"'.encode()
    if name in table:
        entry = table[name]
        row = entry["value_line"] - 1
        first, last = entry["value_col"]
        lines[row] = lines[row][: first - 1] + quoted + lines[row][last:]
        return
    row = _last_line(table)
    previous = lines[row - 1]
    name_line = lines[table["name"]["key_line"] - 1]
    indent = name_line[: len(name_line) - len(name_line.lstrip())]
    ending = previous[len(previous.rstrip(b"\r\n")) :] or _NEWLINE
    if not previous.endswith(_NEWLINE):  # the file's last line
        lines[row - 1] = previous + ending
    lines.insert(row, indent + name.encode() + b" = " + quoted + ending)


def _last_line(table: Mapping[str, Any]) -> int:
    """The last line of a table's own keys, without those of sub-tables that have their own headers."""
    return max(_last(entry["value_line"]) for entry in table.values() if _is_own(entry))


def _is_own(entry: Mapping[str, Any]) -> bool:
    """Whether this is `key = value`: the value of a header begins before its key, with a bracket."""
    if "value_line" not in entry or "key_line" not in entry:
        return False
    key = (_first(entry["key_line"]), _first(entry["key_col"]))
    return key < (_first(entry["value_line"]), _first(entry["value_col"]))


def _first(number: int | tuple[int, int]) -> int:
    return number if isinstance(number, int) else number[0]


def _last(number: int | tuple[int, int]) -> int:
    return number if isinstance(number, int) else number[1]


def _check(before: str, after: str, pins: Mapping[tuple[str, int], Pins]) -> None:
    import toml_rs

    expected: dict[str, Any] = toml_rs.loads(before)
    for (rule, index), found in pins.items():
        expected[rule][index].update(found)
    if toml_rs.loads(after) != expected:
        raise InternalError("writing the pins would change other parts of the file; nothing was written")
