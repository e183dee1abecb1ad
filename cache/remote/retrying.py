"""Retries: how often, and after which pause, a failed request is made again."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from mlcbuild.cache.remote.transport import ErrorKind, TransportError

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Limits in seconds. No attempt begins later than `total_for` the operation's bytes after the first one.

    The pause before attempt n + 1 is random between 0 and `first * 2 ** (n - 1)`, at most `longest` ("full jitter", so
    that many clients do not return at the same time). It is never shorter than the server asks for.
    """

    attempts: int = 5
    first: float = 0.2
    longest: float = 10.0
    total: float = 60.0
    bytes_per_second: float = 1 << 20

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"at least one attempt is needed: {self.attempts}")
        for name in ("first", "longest", "total", "bytes_per_second"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} is not a number of seconds or bytes: {value!r}")
        if not self.bytes_per_second:
            raise ValueError("bytes_per_second is zero")

    def total_for(self, size_bytes: int) -> float:
        return self.total + size_bytes / self.bytes_per_second

    def pause(self, failed: int, chance: float, retry_after: float) -> float:
        """The pause in seconds after `failed` attempts (1 or more). `chance` is random in [0, 1)."""
        backoff = min(self.longest, self.first * 2.0 ** min(failed - 1, 60))
        return max(chance * backoff, retry_after)


class Retrying:
    """Makes requests with retries. Thread-safe. `sleep` answers False if there must be no further attempt."""

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], bool],
        seed: int | None = None,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._sleep = sleep
        self._random = random.Random(seed)

    def run(
        self, request: Callable[[], T], *, size_bytes: int = 0, attempts: int = 0, again: Callable[[], object]
    ) -> T:
        """The answer to `request`. `again` is called before each retry. `attempts` 0: as many as the policy allows.

        Raises the last TransportError: a TRANSIENT one when attempts or time are used up, any other one at once.
        """
        end = self._clock() + self._policy.total_for(size_bytes)
        attempt = 0
        while True:
            try:
                return request()
            except TransportError as error:
                attempt += 1
                if error.kind is not ErrorKind.TRANSIENT or attempt >= (attempts or self._policy.attempts):
                    raise
                pause = self._policy.pause(attempt, self._random.random(), error.retry_after)
                if self._clock() + pause > end or not self._sleep(pause):
                    raise
                again()
