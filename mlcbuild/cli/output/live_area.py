"""The last lines of a terminal, drawn over themselves with ANSI codes.

Each drawing moves the cursor to the first line of the one before, writes the new lines, and erases what is left
below. Nothing is hidden and no mode is set, so a killed process leaves the terminal as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from mlcbuild.cli.output.terminal import terminal_size

_ERASE_LINE = "\x1b[K"
_ERASE_BELOW = "\x1b[J"


class LiveArea:
    """The last lines of a terminal, redrawn in place."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._widths: list[int] = []  # columns of each line on the screen; empty: nothing is drawn

    def draw(self, lines: Sequence[str], widths: Sequence[int], *, above: str = "") -> None:
        """Show `lines` in place of those drawn last; `above` (whole lines) stays before them."""
        parts = [self._home()]
        if above:
            parts += [_ERASE_BELOW, above]
        parts.append("\n".join(f"{line}{_ERASE_LINE}" for line in lines))
        parts.append(_ERASE_BELOW)
        self._widths = list(widths)
        self._write("".join(parts))

    def clear(self, *, above: str = "") -> None:
        """Erase what was drawn, and leave `above` in its place."""
        if self._widths or above:
            self._write(f"{self._home()}{_ERASE_BELOW if self._widths else ''}{above}")
            self._widths = []

    def _home(self) -> str:
        """To the first column of the first line. A window that has become narrower has wrapped the lines."""
        if not self._widths:
            return ""
        columns, _ = terminal_size(self._stream)
        rows = sum(max(-(-width // columns), 1) for width in self._widths)
        return "\r" + (f"\x1b[{rows - 1}A" if rows > 1 else "")

    def _write(self, codes: str) -> None:
        self._stream.write(codes)
        self._stream.flush()
