"""How often, and after what pause, a request that failed is made again. Pure: clock, sleep and chance are given."""

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
    """Seconds. No attempt begins later than `total_for` the operation's bytes after the first one did.

    The pause before attempt n + 1 is chosen evenly between 0 and `first * 2 ** (n - 1)`, at most `longest` ("full
    jitter", so that many clients do not come back together), and is no shorter than what the server asks for.
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
        """Seconds to wait after `failed` attempts (1 and more); `chance` lies in [0, 1)."""
        backoff = min(self.longest, self.first * 2.0 ** min(failed - 1, 60))
        return max(chance * backoff, retry_after)


class Retrying:
    """Makes requests under a policy; thread-safe. `sleep` answers False where waiting has become pointless."""

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

    def run(self, request: Callable[[], T], *, size_bytes: int = 0, again: Callable[[], object]) -> T:
        """What `request` answers. `again` is called before every further attempt.

        Raises the last TransportError: a TRANSIENT one once attempts or time are used up, any other at once.
        """
        end = self._clock() + self._policy.total_for(size_bytes)
        attempt = 0
        while True:
            try:
                return request()
            except TransportError as error:
                attempt += 1
                if error.kind is not ErrorKind.TRANSIENT or attempt >= self._policy.attempts:
                    raise
                pause = self._policy.pause(attempt, self._random.random(), error.retry_after)
                if self._clock() + pause > end or not self._sleep(pause):
                    raise
                again()
