"""The lines of the live display: a status line, and below it the running actions."""

from __future__ import annotations

from mlcbuild.cli.console.action_names import full_title, title, without_label
from mlcbuild.cli.console.progress import Progress
from mlcbuild.cli.output import text
from mlcbuild.cli.output.terminal import Style

_MOST_ACTIONS = 8
_SMALLEST_HEIGHT = 8  # rows; below, the status line alone


def live_lines(progress: Progress, *, now: float, width: int, height: int, style: Style) -> list[str]:
    """The status line, then the actions that have run longest, each within `width` columns.

    `now` is in seconds since the build began. On a low screen the status line names the running actions.
    """
    running = list(progress.running.values())
    status = [progress.places or f"{len(running)} running"]
    if progress.failed:
        status.insert(0, f"{progress.failed} failed")
    if height < _SMALLEST_HEIGHT:
        status += [f"{without_label(title(action))} {now - action.time:.1f}s" for action in running]
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
        lines.append(f"{style.dim(elapsed)}{text.shortened(full_title(action), max(width - len(elapsed), 0))}")
    if len(running) > len(shown):
        lines.append(style.dim(f"{'':9}and {len(running) - len(shown)} more"))
    return lines


def _cut(line: str, width: int) -> str:
    """`line`, cut and ended by `…` if it is longer than `width` columns."""
    if text.cell_width(line) <= width:
        return line
    while line and text.cell_width(line) > width - 1:
        line = line[:-1]
    return f"{line}…" if width > 0 else ""
