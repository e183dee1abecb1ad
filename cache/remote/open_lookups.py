"""The lookups that have no answer yet: each is counted once, also if the build ends before its answer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class OpenLookups:
    """Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: set[object] = set()

    @contextlib.contextmanager
    def begun(self) -> Iterator[object]:
        """A lookup, until the end of the block."""
        lookup = object()
        with self._changed:
            self._open.add(lookup)
        try:
            yield lookup
        finally:
            self.end(lookup)

    def end(self, lookup: object) -> bool:
        """The lookup has ended. False if it had ended before, or was counted by `close`."""
        with self._changed:
            is_open = lookup in self._open
            self._open.discard(lookup)
            self._changed.notify_all()
        return is_open

    def close(self, seconds: float) -> int:
        """Wait at most `seconds` for all lookups. Returns how many have not ended; they count as ended from now on."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, seconds)
            left = len(self._open)
            self._open.clear()
        return left
