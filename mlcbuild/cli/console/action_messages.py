"""The lines about one action: that it ran, or why it failed, with the end of its log."""

from __future__ import annotations

from mlcbuild.cli.console.action_names import full_title, why_failed
from mlcbuild.cli.output import text
from mlcbuild.cli.output.terminal import Style
from mlcbuild.engine.build_events import ActionFinished

LOG_TAIL_LINES = 20


def ran_line(event: ActionFinished, *, counter: str, style: Style) -> str:
    """`[12/62] //models:smollm2 Export · 4.2 s`; on another machine `… · 4.2 s on node-2`"""
    where = f" on {event.node}" if event.node else ""
    return f"{style.dim(counter)} {full_title(event)} · {text.seconds(event.time - event.start)}{where}"


def failure_lines(event: ActionFinished, *, counter: str, log_file: str, whole_log: bool, style: Style) -> list[str]:
    """Which action failed, why, the end of its log, and the path of the whole log."""
    after = f" after {text.seconds(event.time - event.start)}" if event.time > event.start else ""
    first, *rest = (why_failed(event) or f"exit code {event.exit_code}").splitlines()
    head = style.error(f"{full_title(event)} failed{after}")
    lines = [f"{style.dim(counter)} {head}: {first}", *(f"  {line}" for line in rest)]
    return [*lines, *log_lines(event.log, log_file=log_file, whole_log=whole_log, style=style)]


def log_lines(log: bytes, *, log_file: str, whole_log: bool, style: Style) -> list[str]:
    """The log indented by `  │ `, or its last lines and the path of the whole log."""
    printed = text.printable(log.decode("utf-8", "backslashreplace").replace("\r\n", "\n")).rstrip().splitlines()
    if not printed:
        return []
    shown = printed if whole_log else printed[-LOG_TAIL_LINES:]
    lines = [f"  {style.dim('│')} {line}".rstrip() for line in shown]
    if not log_file:
        return lines
    left_out = len(printed) - len(shown)
    return [
        *lines,
        f"  {'whole log' if left_out else 'log'}: {log_file}" + (f" ({len(printed)} lines)" if left_out else ""),
    ]
