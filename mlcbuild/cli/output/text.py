"""Formats seconds and counts for people, and fits text to the width of a terminal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from mlcbuild.errors import readable

COLUMNS = 80
"""The width of what is printed for people where no terminal tells one. Long names alone exceed it."""

_CONTINUED = 4  # columns by which the further lines of a wrapped line are indented
_FEWEST_COLUMNS = 20  # of a name in a table, however narrow a terminal is
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
# A command in backquotes is one word, because people copy it.
_WORD = re.compile(r"(\s*)((?:`[^`\s][^`]*`|\S)+)")


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


def padded(text: str, width: int) -> str:
    """`text` in exactly `width` columns: shortened, or with spaces behind it."""
    shown = shortened(text, width)
    return shown + " " * (width - cell_width(shown))


def name_columns(names: Iterable[str], *, width: int, others: int) -> int:
    """How wide a table's column of names is: as the longest, as far as `width` columns have room beside the `others`.
    With width 0 there is room for all.
    """
    longest = max(map(cell_width, names), default=0)
    return min(longest, max(width - others, _FEWEST_COLUMNS)) if width else longest


def listed(items: Sequence[str], *, start: str, indent: int, width: int = COLUMNS) -> list[str]:
    """`start` and the items, with commas between them, in lines of `width` columns, or in one line where it is 0.
    Further lines have an indent.

    The first item stands behind `start` in any case. No item is broken, so one that is longer has a longer line.
    """
    lines = [start]
    for number, item in enumerate(items, 1):
        piece = item if number == len(items) else f"{item},"
        gap = "" if lines[-1].endswith(" ") else " "
        if number == 1 or not width or cell_width(lines[-1] + gap + piece) <= width:
            lines[-1] += gap + piece
        else:
            lines[-1] = lines[-1].rstrip()
            lines.append(" " * indent + piece)
    return lines


def wrapped(
    lines: Iterable[str], width: int, *, verbatim: Collection[str] = (), indent: int = _CONTINUED
) -> Iterator[str]:
    """The lines of a message, those that are wider than `width` columns broken at spaces; width 0 breaks none.

    Further lines are indented by `indent` columns more. No word is broken, so a long path has a longer line; neither is
    a command in backquotes that fits into a line, nor a line of a log behind its bar, nor one of `verbatim`.
    """
    for line in lines:
        if not width or _shown_width(line) <= width or _is_logged(line) or line in verbatim:
            yield line
        else:
            yield from _broken(line, width, indent)


def _broken(line: str, width: int, indent: int) -> Iterator[str]:
    content = line.lstrip(" ")
    margin = " " * (len(line) - len(content) + indent)
    current, is_empty = line[: len(line) - len(content)], True
    for gap, word in _words(content, width - len(margin)):
        if is_empty or _shown_width(current + gap + word) <= width:
            current += word if is_empty else gap + word
        else:
            yield current
            current = margin + word
        is_empty = False
    yield current


def _words(content: str, room: int) -> Iterator[tuple[str, str]]:
    """Each word and the gap before it. What is in backquotes is one word unless it is wider than `room`."""
    for gap, word in _WORD.findall(content):
        if _shown_width(word) <= room:
            yield gap, word
        else:
            yield from ((gap if not index else " ", part) for index, part in enumerate(word.split()))


def _shown_width(line: str) -> int:
    return cell_width(_COLOUR.sub("", line))


def _is_logged(line: str) -> bool:
    return _COLOUR.sub("", line).lstrip(" ").startswith("│")


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
