"""A circuit breaker: decides when a server has failed so often that it is left alone for a while.

It has no clock and no locks.
"""

from __future__ import annotations

import collections
import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CircuitBreakerLimits:
    """What opens a circuit breaker: `in_a_row` failed operations, or a `share` of failures among the last ones.

    An operation is a request with all its retries. The share is that of the last `window` seconds, if there were at
    least `least` operations in them. After `first_pause` seconds one operation is a trial, which closes the circuit
    breaker if it succeeds. The pause doubles after each failed trial, up to `longest_pause`. With a `first_pause` of
    infinity the circuit breaker stays open.
    """

    in_a_row: int = 3
    share: float = 0.5
    least: int = 20
    window: float = 60.0
    first_pause: float = 5.0
    longest_pause: float = 60.0

    def __post_init__(self) -> None:
        if self.in_a_row < 1 or self.least < 1:
            raise ValueError(f"a circuit breaker that opens without a failure: {self!r}")
        if not (0 < self.share <= 1 and self.window > 0 and math.isfinite(self.window)):
            raise ValueError(f"a circuit breaker needs a share in (0, 1] and a window above 0 s: {self!r}")
        if not (self.first_pause > 0 and self.longest_pause > 0):
            raise ValueError(f"a circuit breaker needs pauses above 0 s: {self!r}")


class CircuitBreaker:
    """Closed at first. `now` is the time of any clock that does not go back.

    While it is open, `begin_trial` answers True when one operation may be tried. That operation must end in `succeeded`
    or `failed` with `is_trial`, or in `end_trial`. Other operations may have begun before it opened.
    """

    def __init__(self, limits: CircuitBreakerLimits) -> None:
        self._limits = limits
        self._in_a_row = 0
        self._recent: collections.deque[tuple[float, bool]] = collections.deque()
        self._failures = 0
        self._is_open = False
        self._is_trying = False
        self._pause = limits.first_pause
        self._until = 0.0  # no trial before

    @property
    def is_open(self) -> bool:
        return self._is_open

    def may_try(self, now: float) -> bool:
        """Whether it is open, and a trial may begin."""
        return self._is_open and not self._is_trying and now >= self._until

    def begin_trial(self, now: float) -> bool:
        if not self.may_try(now):
            return False
        self._is_trying = True
        return True

    def end_trial(self) -> None:
        """The trial says nothing about the server. Another one may begin at once."""
        self._is_trying = False

    def allow_trial(self, now: float) -> None:
        """Do not wait for the end of the pause, however long it is."""
        self._until = min(self._until, now)

    def succeeded(self, now: float, *, is_trial: bool = False) -> bool:
        """Whether this success closes the circuit breaker. Only that of a trial does."""
        self._in_a_row = 0
        self._add(now, failed=False)
        if not is_trial:
            return False
        self._is_open = self._is_trying = False
        self._pause = self._limits.first_pause
        self._recent.clear()
        self._failures = 0
        return True

    def failed(self, now: float, *, is_trial: bool = False) -> bool:
        """Whether this failure opens the circuit breaker."""
        self._in_a_row += 1
        self._add(now, failed=True)
        if is_trial:
            self._is_trying = False
            self._pause = min(2 * self._pause, self._limits.longest_pause)
            self._until = now + self._pause
        many = len(self._recent) >= self._limits.least and self._failures >= self._limits.share * len(self._recent)
        if self._is_open or not (many or self._in_a_row >= self._limits.in_a_row):
            return False
        self._is_open = True
        self._until = now + self._pause
        return True

    def _add(self, now: float, *, failed: bool) -> None:
        self._recent.append((now, failed))
        self._failures += failed
        while self._recent[0][0] < now - self._limits.window:
            self._failures -= self._recent.popleft()[1]
