"""Prints the progress of a fetch to standard error: an action's log, or the terminal of `fetch --update`."""

from __future__ import annotations

import sys
import time

_SECONDS_BETWEEN = 5.0


def note(text: str) -> None:
    """Print a line."""
    print(text, file=sys.stderr, flush=True)


class DownloadProgress:
    """Prints a line every few seconds. `total` is in bytes; None: not known yet."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = time.monotonic()
        self.total: int | None = None

    def show(self, received: int) -> None:
        now = time.monotonic()
        if now - self._shown < _SECONDS_BETWEEN:
            return
        self._shown = now
        of = f" of {self.total / 1e6:.0f}" if self.total is not None else ""
        note(f"{self._what}: {received / 1e6:.0f}{of} MB")
