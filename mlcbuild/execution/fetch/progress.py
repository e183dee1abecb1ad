"""How far a download is, as lines in the action's log."""

from __future__ import annotations

import time

_SECONDS_BETWEEN = 5.0


class Progress:
    """Prints a line every few seconds. `total` is in bytes, None while it is not known."""

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
        print(f"{self._what}: {received / 1e6:.0f}{of} MB", flush=True)
