"""How long a look-up over the network is waited for before its action runs all the same.

As long as the action itself would take: whoever waits that long and then begins has lost at most as much again, however
slow the network is, and no rule that does not know the future is better (the ski-rental problem). A remote that goes on
answering is not slow, however many look-ups stand in line: where all is found, nothing is to run.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_LEAST_SECONDS = 0.5  # A server may be a continent away, and its answer worth more than a run on a laptop.
_FIRST_SECONDS = 3.0  # for the first answer: a client is loaded and connected before


class LookupTimeout:
    """Look-ups that are on their way, and how long each is waited for since it was asked and since the remote was heard
    last. Seconds are those of `clock`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._asked: dict[str, tuple[float, float]] = {}  # when, and the seconds of its action
        self._heard = -math.inf
        self._least = _FIRST_SECONDS

    def asked(self, identifier: str, *, run_seconds: float) -> None:
        """A look-up begins, for an action that takes `run_seconds`."""
        self._asked[identifier] = (self._clock(), run_seconds)

    def answered(self, identifier: str) -> None:
        self._asked.pop(identifier, None)
        self._heard, self._least = self._clock(), _LEAST_SECONDS

    def seconds_left(self) -> float | None:
        """Until the next one has taken too long; None where none is on its way."""
        return max(0.0, min(map(self._until, self._asked)) - self._clock()) if self._asked else None

    def exhausted(self) -> list[str]:
        """Those that have taken too long, each told once."""
        now = self._clock()
        late = [identifier for identifier in self._asked if self._until(identifier) <= now]
        for identifier in late:
            del self._asked[identifier]
            self._least = _LEAST_SECONDS
        return late

    def _until(self, identifier: str) -> float:
        asked, run_seconds = self._asked[identifier]
        return max(asked, self._heard) + max(self._least, run_seconds)
