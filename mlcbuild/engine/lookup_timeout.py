"""How long a build waits for a lookup over the network before it runs the action as well.

It waits as long as the action itself would take. So lookup and run together take at most twice the time of the run,
however slow the network is. No rule that does not know the future guarantees less (the ski-rental problem). A remote
that keeps answering is not slow, however many lookups are in its queue: where everything is found, nothing has to run.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_LEAST_SECONDS = 0.5  # A server may be a continent away, and its answer is still worth more than a run on a laptop.
_FIRST_SECONDS = 3.0  # until the first answer: the client has to be loaded and connected first


class LookupTimeout:
    """The lookups in flight, and until when each is waited for. `clock` gives seconds.

    The time of a lookup begins when it was asked for, and begins again at each answer of the remote to anything.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._asked: dict[
            str, tuple[float, float]
        ] = {}  # by identifier: when it was asked for, and the seconds of its action
        self._heard = -math.inf
        self._least = _FIRST_SECONDS

    def asked(self, identifier: str, *, run_seconds: float) -> None:
        """A lookup begins, of an action that takes about `run_seconds`."""
        self._asked[identifier] = (self._clock(), run_seconds)

    def answered(self, identifier: str) -> None:
        self._asked.pop(identifier, None)
        self._heard, self._least = self._clock(), _LEAST_SECONDS

    def seconds_left(self) -> float | None:
        """The seconds until the next lookup has taken too long; None where none is in flight."""
        return max(0.0, min(map(self._until, self._asked)) - self._clock()) if self._asked else None

    def exhausted(self) -> list[str]:
        """The lookups that have taken too long. Each is returned once."""
        now = self._clock()
        late = [identifier for identifier in self._asked if self._until(identifier) <= now]
        for identifier in late:
            del self._asked[identifier]
            self._least = _LEAST_SECONDS
        return late

    def _until(self, identifier: str) -> float:
        asked, run_seconds = self._asked[identifier]
        return max(asked, self._heard) + max(self._least, run_seconds)
