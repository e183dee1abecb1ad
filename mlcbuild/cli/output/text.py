"""Formats seconds and counts for people, and fits text to the width of a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from mlcbuild.errors import readable

COLUMNS = 80
"""The width of what is printed for people where no terminal tells one. Long names alone exceed it."""


def seconds(value: float) -> str:
    """`0.4 s`, `12.4 s`, `2 min 05 s`, `1 h 02 min`."""
    value = max(value, 0.0)
    if round(value, 1) < 60:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(value / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def plural(count: int, noun: str) -> str:
    """`1 action`, `62 actions`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def cell_width(text: str) -> int:
    """The number of terminal columns of `text`, which has no control characters."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(character) else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def shortened(text: str, width: int) -> str:
    """`text` within `width` columns. The middle of a longer text becomes `…`, because both ends of a name matter."""
    if cell_width(text) <= width:
        return text
    if width < 1:
        return ""
    tail = (width - 1) // 2
    head = width - 1 - tail
    left, right = text[:head], text[len(text) - tail :]
    while left and cell_width(left) > head:
        left = left[:-1]
    while right and cell_width(right) > tail:
        right = right[1:]
    return f"{left}…{right}"


def listed(items: Sequence[str], *, start: str, indent: int) -> list[str]:
    """`start` and the items, with commas between them, in lines of 80 columns; further lines have an indent.

    The first item stands behind `start` in any case. No item is broken, so one that is longer has a longer line.
    """
    lines = [start]
    for number, item in enumerate(items, 1):
        piece = item if number == len(items) else f"{item},"
        gap = "" if lines[-1].endswith(" ") else " "
        if number == 1 or cell_width(lines[-1] + gap + piece) <= COLUMNS:
            lines[-1] += gap + piece
        else:
            lines[-1] = lines[-1].rstrip()
            lines.append(" " * indent + piece)
    return lines


def first_of(items: Sequence[str], most: int) -> list[str]:
    """The first items, and how many others there are: `["a", "b", "and 3 more"]`."""
    left = len(items) - most
    return [*items[:most], f"and {left:,} more"] if left > 0 else list(items)


def printable(text: str) -> str:
    """`text` with control characters except tabs and line ends made visible, so that no log controls the terminal, and
    with bytes that are not UTF-8.
    """
    text = readable(text)
    if text.isprintable():
        return text
    return "".join(
        character if character in "\n\t" or not _is_control(character) else f"\\x{ord(character):02x}"
        for character in text
    )


def _is_control(character: str) -> bool:
    code = ord(character)
    return code < 0x20 or 0x7F <= code < 0xA0
