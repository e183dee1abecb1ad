"""Shows a running build: a live display on a terminal, a summary line every so often and a closing table elsewhere.

A console is a listener of build events and may be called from any thread. Failures and notes are written at once and
stay; on a terminal they scroll above the live display.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from mlcbuild.cli.console.action_messages import failure_lines, log_lines, ran_line
from mlcbuild.cli.console.action_names import full_title
from mlcbuild.cli.console.failed_targets import FailedTargets
from mlcbuild.cli.console.live_display import live_lines
from mlcbuild.cli.console.progress import Progress
from mlcbuild.cli.console.target_table import TargetTable
from mlcbuild.cli.output import text
from mlcbuild.cli.output.live_area import LiveArea
from mlcbuild.cli.output.terminal import Style, terminal_size
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionStatus,
    BuildEvent,
    BuildFinished,
    BuildStarted,
    Notice,
    TargetFinished,
)
from mlcbuild.engine.target_totals import RAN

_FRAME_SECONDS = 0.1
_FIRST_SUMMARY_SECONDS = 10.0  # without a terminal; the next ones come at each doubling
_LONGEST_SILENCE_SECONDS = 300.0  # some CI services end a job that prints nothing for ten minutes


class TellsOfTests(Protocol):
    """Says what is written of tests."""

    def lines_about(self, event: ActionFinished) -> list[str] | None:
        """Of an action that is a run of a test; None of another."""
        ...

    def is_test(self, label: str) -> bool: ...


class Console:
    """Writes to `stream`; `live` allows it to move the cursor. With `quiet` it writes failures and notes alone, with
    `verbose` also a line for each action that ran.

    `keep_log` stores an action's log and returns its path, "" if it stored none. `width` returns the columns into which
    lines are wrapped, 0 for lines of any length, and `clock` seconds. Of runs of tests, `tests` tells instead.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        style: Style,
        live: bool,
        keep_log: Callable[[ActionFinished], str],
        show_log: bool = False,
        quiet: bool = False,
        verbose: bool = False,
        width: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
        tests: TellsOfTests | None = None,
    ) -> None:
        self._stream = stream
        self._style = style
        self._keep_log = keep_log
        self._show_log = show_log
        self._quiet = quiet
        self._verbose = verbose
        self._width = width
        self._clock = clock
        self._tests = tests
        self._progress = Progress()
        self._began: float | None = None  # the clock when the build began; None before and after a build
        self._next_summary = _FIRST_SUMMARY_SECONDS  # since the build began
        self._table = TargetTable()
        self._failed_targets = FailedTargets()
        self._area = LiveArea(stream) if live and not quiet else None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._ticker: threading.Thread | None = None

    def __call__(self, event: BuildEvent) -> None:
        """Take one event. Raises OSError if the stream cannot be written."""
        with self._lock:
            self._progress.apply(event)
            self._table.apply(event)
            match event:
                case BuildStarted():
                    self._began = self._clock() - event.time
                    self._start_ticker()
                case ActionFinished():
                    self._failed_targets.apply(event)
                    self._say(self._about_action(event))
                case Notice():
                    self._say([f"{self._style.warning('note:')} {text.printable(event.message)}"])
                case TargetFinished() if self._tests and self._tests.is_test(event.label):
                    pass  # The summary of the tests tells it.
                case TargetFinished() if not event.success and not self._progress.is_not_cached(event.blocked_by):
                    self._write(self._failed_targets.failed(event, self._style))
                case BuildFinished():
                    self._write(self._failed_targets.lines(self._style))
                    self._stop_drawing()
                    if not self._area and not self._quiet and not self._tests:
                        self._say([text.printable(line) for line in self._table.lines()])
                case _:
                    pass

    def say(self, lines: Sequence[str]) -> None:
        """Write whole lines, above the live display if there is one."""
        with self._lock:
            self._say(lines)

    def tick(self) -> None:
        """Redraw the live display, or write a summary line if one is due."""
        with self._lock:
            if self._began is None:
                return
            if self._area:
                self._draw()
            elif not self._quiet:
                self._say(self._due_summary(self._clock() - self._began))

    def close(self) -> None:
        """Erase the live display and stop ticking. May be called twice."""
        with self._lock:
            self._write(self._failed_targets.lines(self._style))
            self._stop_drawing()
        if self._ticker and self._ticker is not threading.current_thread():
            self._ticker.join()
            self._ticker = None

    def _about_action(self, event: ActionFinished) -> list[str]:
        counter = self._progress.counter
        if self._tests and (lines := self._tests.lines_about(event)) is not None:
            return lines
        if event.status is ActionStatus.FAILED:
            if event.shared_with:
                return []  # The action that ran has told it, with the targets that share it.
            log_file = self._keep_log(event)
            return failure_lines(event, counter=counter, log_file=log_file, whole_log=self._show_log, style=self._style)
        if event.status not in RAN:
            return []
        log_file = self._keep_log(event)
        logged = self._show_log and bool(event.log)
        lines = [ran_line(event, counter=counter, style=self._style)] if logged or self._verbose else []
        if logged:
            lines += log_lines(event.log, log_file=log_file, whole_log=True, style=self._style)
        return lines

    def _due_summary(self, now: float) -> list[str]:
        """`[12/62] 20.0 s · 4 running · longest //models:a Export 18.2 s`, if it is time."""
        if now < self._next_summary:
            return []
        while self._next_summary <= now:
            self._next_summary += min(self._next_summary, _LONGEST_SILENCE_SECONDS)
        running = list(self._progress.running.values())
        parts = [text.seconds(now)]
        if self._progress.failed:
            parts.append(f"{self._progress.failed} failed")
        parts.append(self._progress.places or f"{len(running)} running")
        if running:
            parts.append(f"longest {full_title(running[0])} {text.seconds(now - running[0].time)}")
        return [f"{self._style.dim(self._progress.counter)} {' · '.join(parts)}"]

    def _say(self, lines: Sequence[str]) -> None:
        if lines:
            self._write([*self._failed_targets.lines(self._style), *lines])

    def _write(self, lines: Sequence[str]) -> None:
        if not lines:
            return
        whole = "".join(f"{line}\n" for line in text.wrapped(lines, self._width()))
        if self._area and self._began is not None:
            self._draw(above=whole)
        else:
            self._stream.write(whole)
            self._stream.flush()

    def _draw(self, *, above: str = "") -> None:
        if self._area is None or self._began is None:
            return
        columns, rows = terminal_size(self._stream)
        now = self._clock() - self._began
        # One column stays free: after a full line the cursor may be in either of two rows.
        plain, painted = (
            live_lines(self._progress, now=now, width=columns - 1, height=rows, style=style)
            for style in (Style(), self._style)
        )
        self._area.draw(painted, [text.cell_width(line) for line in plain], above=above)

    def _start_ticker(self) -> None:
        if self._ticker is None:
            self._stopped.clear()
            self._ticker = threading.Thread(target=self._tick_on, name="console", daemon=True)
            self._ticker.start()

    def _tick_on(self) -> None:
        period = _FRAME_SECONDS if self._area else 1.0
        while not self._stopped.wait(period):
            try:
                self.tick()
            except (OSError, ValueError):  # the terminal is closed; the build goes on
                return

    def _stop_drawing(self) -> None:
        self._stopped.set()
        self._began = None
        if self._area:
            self._area.clear()
