"""A circuit breaker: decides when a server has failed so often that it is not used any more. Has no clock, no locks."""

from __future__ import annotations

import collections
import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CircuitBreakerLimits:
    """What opens a circuit breaker: `in_a_row` failed operations, or a `share` of failures among the last ones.

    An operation is a request with all its retries. The share is that of the last `window` seconds, if there were at
    least `least` operations in them.
    """

    in_a_row: int = 3
    share: float = 0.5
    least: int = 20
    window: float = 60.0

    def __post_init__(self) -> None:
        if self.in_a_row < 1 or self.least < 1:
            raise ValueError(f"a circuit breaker that opens without a failure: {self!r}")
        if not (0 < self.share <= 1 and self.window > 0 and math.isfinite(self.window)):
            raise ValueError(f"a circuit breaker needs a share in (0, 1] and a window above 0 s: {self!r}")


class CircuitBreaker:
    """Closed at first. Once open it stays open. `now` is the time of any clock that does not go back."""

    def __init__(self, limits: CircuitBreakerLimits) -> None:
        self._limits = limits
        self._in_a_row = 0
        self._recent: collections.deque[tuple[float, bool]] = collections.deque()
        self._failures = 0
        self._is_open = False

    @property
    def is_open(self) -> bool:
        return self._is_open

    def succeeded(self, now: float) -> None:
        self._in_a_row = 0
        self._add(now, failed=False)

    def failed(self, now: float) -> bool:
        """Whether this failure opens the circuit breaker."""
        self._in_a_row += 1
        self._add(now, failed=True)
        many = len(self._recent) >= self._limits.least and self._failures >= self._limits.share * len(self._recent)
        if self._is_open or not (many or self._in_a_row >= self._limits.in_a_row):
            return False
        self._is_open = True
        return True

    def _add(self, now: float, *, failed: bool) -> None:
        self._recent.append((now, failed))
        self._failures += failed
        while self._recent[0][0] < now - self._limits.window:
            self._failures -= self._recent.popleft()[1]
