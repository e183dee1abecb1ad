"""The live part of the screen: a status line and the running actions, drawn over themselves with ANSI codes.

`live_lines` says what is shown, `LiveArea` how: it moves the cursor to the first of the lines it drew last,
writes the new ones, and erases what is left below. Nothing is hidden and no mode is set, so that a killed
process leaves the terminal as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from mlcbuild.cli import text
from mlcbuild.cli.progress import Progress, action_name
from mlcbuild.cli.terminal import Style, terminal_size

_MOST_ACTIONS = 8
_SMALLEST_HEIGHT = 8  # rows; below, the status line alone
_ERASE_LINE = "\x1b[K"
_ERASE_BELOW = "\x1b[J"


def live_lines(progress: Progress, *, now: float, width: int, height: int, style: Style) -> list[str]:
    """The status line, then the actions that have run longest, each within `width` columns.

    `now` is in seconds since the build began. On a low screen the status line names what runs.
    """
    running = list(progress.running.values())
    status = [progress.places or f"{len(running)} running"]
    if progress.failed:
        status.insert(0, f"{progress.failed} failed")
    if height < _SMALLEST_HEIGHT:
        status += [f"{action_name(action.identifier)} {now - action.time:.1f}s" for action in running]
        running = []
    else:
        status.append(text.seconds(now))
    counter = progress.counter
    room = max(width - len(counter) - 1, 0)
    lines = [f"{style.good(counter)} {_cut(' · '.join(status), room)}"]
    most = min(_MOST_ACTIONS, height // 3)
    shown = running if len(running) <= most else running[: most - 1]
    for action in shown:
        elapsed = f"{max(now - action.time, 0.0):7.1f}s "
        lines.append(f"{style.dim(elapsed)}{text.shortened(action.identifier, max(width - len(elapsed), 0))}")
    if len(running) > len(shown):
        lines.append(style.dim(f"{'':9}and {len(running) - len(shown)} more"))
    return lines


def _cut(line: str, width: int) -> str:
    """`line` ended by `…` where it is longer than `width` columns."""
    if text.cell_width(line) <= width:
        return line
    while line and text.cell_width(line) > width - 1:
        line = line[:-1]
    return f"{line}…" if width > 0 else ""


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
