"""The progress of a command that takes longer than a second, as one line that a terminal redraws."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.output import text
from mlcbuild.cli.output.live_area import LiveArea
from mlcbuild.cli.output.terminal import is_terminal, terminal_size

_QUIET_SECONDS = 1.0
_FRAME_SECONDS = 0.1


class SlowProgress:
    """Call it with the current work, how much of it is done, and the total. With `live` it redraws one line.

    Otherwise it writes a line after one second, then at each doubling. `clock` returns seconds.
    """

    def __init__(self, stream: TextIO, *, live: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._area = LiveArea(stream) if live else None
        self._began = clock()
        self._next = self._began + _QUIET_SECONDS

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._clock() >= self._next:
            self._show(f"{what}: " + (f"{min(done * 100 // total, 100)} %" if total else f"{done:,}"))

    def show_counted(self, what: str, done: int, known: int) -> None:
        """The same for work of which more may become known, so that a percentage could fall."""
        if self._clock() >= self._next:
            self._show(f"{what}: {done:,} of {known:,}" if done < known else f"{what}: {done:,}")

    def show_unmeasured(self, what: str) -> None:
        """The same for work whose total is unknown."""
        if self._clock() >= self._next:
            self._show(what)

    def _show(self, progress: str) -> None:
        now = self._clock()
        line = f"{progress} · {text.seconds(now - self._began)}"
        if self._area is None:
            self._next = self._began + 2 * (now - self._began)
            print(line, file=self._stream, flush=True)
            return
        self._next = now + _FRAME_SECONDS
        columns, _ = terminal_size(self._stream)
        line = text.shortened(line, columns)
        self._area.draw([line], [text.cell_width(line)])

    def close(self) -> None:
        """Erase the line."""
        if self._area is not None:
            self._area.clear()


@contextmanager
def slow_progress(options: GlobalOptions) -> Iterator[SlowProgress]:
    """Show progress on standard error until the block ends."""
    progress = SlowProgress(sys.stderr, live=is_terminal(sys.stderr, options.environment))
    try:
        yield progress
    finally:
        progress.close()
