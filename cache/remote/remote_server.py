"""One server as the layer above sees it: requests are made again, and a server that keeps failing is left alone."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.remote.circuit_breaker import CircuitBreaker, CircuitBreakerLimits
from mlcbuild.cache.remote.counters import Tally
from mlcbuild.cache.remote.policy import Purpose
from mlcbuild.cache.remote.retrying import Retrying, RetryPolicy
from mlcbuild.cache.remote.transport import ErrorKind, Transport, TransportError

T = TypeVar("T")


class Access(enum.Enum):
    """What a request is made for: who may not write may still read."""

    READ = "read"
    WRITE = "write"


class RemoteServer:
    """Thread-safe. `stopped` is set when nobody waits any more: no request is made again after that.

    An error of kind ITEM tells nothing of the server, and is for the caller to tell.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        purpose: Purpose,
        policy: RetryPolicy,
        limits: CircuitBreakerLimits,
        tally: Tally,
        warn: Callable[[str], object],
        stopped: threading.Event,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], bool] | None = None,
        seed: int | None = None,
    ) -> None:
        self.transport = transport
        self._purpose = purpose.value
        # Who builds has another way to what the server would have answered; who only moves things has not.
        self._goes_on = "without its answer" if purpose is Purpose.BUILD else "with the rest"
        self._tally = tally
        self._warn = warn
        self._stopped = stopped
        self._clock = clock
        self._pause = sleep or (lambda seconds: not stopped.wait(seconds))
        self._retrying = Retrying(policy, clock=clock, sleep=self._sleep, seed=seed)
        self._lock = threading.Lock()
        self._breaker = CircuitBreaker(limits)
        self._off: set[Access] = set()
        self._has_failed = False
        self.damaged: set[Digest] = set()  # blobs that it is known to have with bytes that are not theirs

    @property
    def address(self) -> str:
        return self.transport.address

    def is_off(self, access: Access) -> bool:
        return access in self._off

    def ask(self, access: Access, request: Callable[[], T], *, size_bytes: int = 0) -> T:
        """The answer to `request`, tried again after transient errors. Raises TransportError, at once where off."""
        if access in self._off:
            raise TransportError(
                f"{self.address} is not used any more in this {self._purpose}", kind=ErrorKind.UNUSABLE
            )
        try:
            answer = self._retrying.run(request, size_bytes=size_bytes, again=lambda: self._tally.add(retries=1))
        except TransportError as error:
            self._failed(access, error)
            raise
        with self._lock:
            self._breaker.succeeded(self._clock())
        return answer

    def _sleep(self, seconds: float) -> bool:
        """Not for a server that others have found to be off."""
        return Access.READ not in self._off and self._pause(seconds) and Access.READ not in self._off

    def _failed(self, access: Access, error: TransportError) -> None:
        self._tally.add(failures=1)
        if error.kind is ErrorKind.ITEM or self._stopped.is_set():
            return  # What we cut off ourselves tells nothing of the server either.
        alone = f"is left alone for the rest of the {self._purpose}"
        if error.kind is ErrorKind.TRANSIENT:
            with self._lock:
                opened = self._breaker.failed(self._clock())
                is_first, self._has_failed = not self._has_failed, True
            if opened:
                self._turn_off(Access.READ, f"keeps failing and {alone}", error)
            elif is_first:
                self._warn(
                    f"the remote cache {self.address} failed, the {self._purpose} goes on {self._goes_on}: {error}"
                )
        elif error.kind is ErrorKind.REFUSED and access is Access.WRITE:
            self._turn_off(Access.WRITE, f"refuses uploads, nothing more is sent to it in this {self._purpose}", error)
        else:
            why = "refuses us" if error.kind is ErrorKind.REFUSED else "cannot be used"
            self._turn_off(Access.READ, f"{why} and {alone}", error)

    def _turn_off(self, access: Access, told: str, error: TransportError) -> None:
        with self._lock:
            if access in self._off:
                return
            self._off.update([Access.WRITE] if access is Access.WRITE else Access)
        self._warn(f"the remote cache {self.address} {told}: {error}")
