"""How long a look-up over the network is waited for before its action runs all the same.

As long as the action itself would take: whoever waits that long and then begins has lost at most as much again, however
slow the network is, and no rule that does not know the future is better (the ski-rental problem).
"""

from __future__ import annotations

from collections.abc import Callable

_LEAST_SECONDS = 0.5  # A server may be a continent away, and its answer worth more than a run on a laptop.


class Patience:
    """Look-ups that are on their way, with the moment when each has taken too long. Seconds are those of `clock`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def asked(self, identifier: str, *, run_seconds: float) -> None:
        """A look-up begins, for an action that takes `run_seconds`."""
        self._until[identifier] = self._clock() + max(_LEAST_SECONDS, run_seconds)

    def answered(self, identifier: str) -> None:
        self._until.pop(identifier, None)

    def seconds_left(self) -> float | None:
        """Until the next one has taken too long; None where none is on its way."""
        return max(0.0, min(self._until.values()) - self._clock()) if self._until else None

    def exhausted(self) -> list[str]:
        """Those that have taken too long, each told once."""
        now = self._clock()
        late = [identifier for identifier, until in self._until.items() if until <= now]
        for identifier in late:
            del self._until[identifier]
        return late
