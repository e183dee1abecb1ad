"""One server with retries and a circuit breaker: requests are retried, and a server that keeps failing is disabled."""

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
    """Whether a request reads or writes. A server that denies writes may still be read."""

    READ = "read"
    WRITE = "write"


class RemoteServer:
    """One server. Thread-safe. After `stopped` is set, no request is retried.

    An error of kind ITEM says nothing about the server. The caller has to report it.
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
        # A build can make what the server would have answered; a pull or push cannot.
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
        self.damaged: set[Digest] = set()  # blobs that the server has with wrong bytes

    @property
    def address(self) -> str:
        return self.transport.address

    def is_off(self, access: Access) -> bool:
        return access in self._off

    def ask(self, access: Access, request: Callable[[], T], *, size_bytes: int = 0) -> T:
        """The answer to `request`, with retries. Raises TransportError, at once if the server is disabled."""
        if access in self._off:
            raise TransportError(f"{self.address} is disabled for this {self._purpose}", kind=ErrorKind.UNUSABLE)
        try:
            answer = self._retrying.run(request, size_bytes=size_bytes, again=lambda: self._tally.add(retries=1))
        except TransportError as error:
            self._failed(access, error)
            raise
        with self._lock:
            self._breaker.succeeded(self._clock())
        return answer

    def _sleep(self, seconds: float) -> bool:
        """Wait before a retry. False if another thread has disabled the server meanwhile."""
        return Access.READ not in self._off and self._pause(seconds) and Access.READ not in self._off

    def _failed(self, access: Access, error: TransportError) -> None:
        self._tally.add(failures=1)
        if error.kind is ErrorKind.ITEM or self._stopped.is_set():
            return  # Nor does a request that was cut off here say anything about the server.
        disabled = f"disabled for this {self._purpose}"
        if error.kind is ErrorKind.TRANSIENT:
            with self._lock:
                opened = self._breaker.failed(self._clock())
                is_first, self._has_failed = not self._has_failed, True
            if opened:
                self._turn_off(Access.READ, f"keeps failing; {disabled}", error)
            elif is_first:
                self._warn(
                    f"the remote cache {self.address} failed; the {self._purpose} continues {self._goes_on}: {error}"
                )
        elif error.kind is ErrorKind.DENIED and access is Access.WRITE:
            self._turn_off(Access.WRITE, f"denied an upload; uploads are {disabled}", error)
        else:
            why = "denied access" if error.kind is ErrorKind.DENIED else "cannot be used"
            self._turn_off(Access.READ, f"{why}; {disabled}", error)

    def _turn_off(self, access: Access, told: str, error: TransportError) -> None:
        with self._lock:
            if access in self._off:
                return
            self._off.update([Access.WRITE] if access is Access.WRITE else Access)
        self._warn(f"the remote cache {self.address} {told}: {error}")
