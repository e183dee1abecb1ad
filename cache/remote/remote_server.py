"""One server with retries and a circuit breaker: a server that keeps failing is left alone, and tried again later."""

from __future__ import annotations

import enum
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.remote.circuit_breaker import CircuitBreaker, CircuitBreakerLimits
from mlcbuild.cache.remote.counters import Tally
from mlcbuild.cache.remote.policy import Purpose
from mlcbuild.cache.remote.retrying import Retrying, RetryPolicy
from mlcbuild.cache.remote.transport import ErrorKind, Transport, TransportError

T = TypeVar("T")

_MOST_TOLD = 3  # how often a server that keeps failing and comes back is told of


class Access(enum.Enum):
    """Whether a request reads or writes. A server that denies writes may still be read."""

    READ = "read"
    WRITE = "write"


class RemoteServer:
    """One server. Thread-safe. After `stopped` is set, no request is retried.

    An error of kind ITEM says nothing about the server. The caller has to report it. `on_recovery` is called when a
    server that kept failing answers again, from the thread of the request.
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
        on_recovery: Callable[[], object] = lambda: None,
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
        self._on_recovery = on_recovery
        self._clock = clock
        self._pause = sleep or (lambda seconds: not stopped.wait(seconds))
        self._retrying = Retrying(policy, clock=clock, sleep=self._sleep, seed=seed)
        self._lock = threading.Lock()
        # A pull or push can do nothing else meanwhile, so it ends instead of trying again.
        self._comes_back = purpose is Purpose.BUILD
        self._breaker = CircuitBreaker(limits if self._comes_back else replace(limits, first_pause=math.inf))
        self._off: set[Access] = set()  # for good
        self._has_told_failure = False
        self._told_openings = 0
        self._untold: TransportError | None = None  # the last failed attempt, if nobody knows of a failure yet
        self.has_answered = False
        self.damaged: set[Digest] = set()  # blobs that the server has with wrong bytes

    @property
    def address(self) -> str:
        return self.transport.address

    def is_off(self, access: Access) -> bool:
        """Whether a request would not be made, now or for good."""
        return access in self._off or (self._breaker.is_open and not self._breaker.may_try(self._clock()))

    def is_off_for_good(self, access: Access) -> bool:
        return access in self._off or (self._breaker.is_open and not self._comes_back)

    def ask(self, access: Access, request: Callable[[], T], *, size_bytes: int = 0) -> T:
        """The answer to `request`, with retries. Raises TransportError: of kind OFF, at once, if the server is left
        alone.
        """
        is_trial = self._begin(access)

        def attempt() -> T:
            try:
                return request()
            except TransportError as error:
                self._untold = error
                raise

        try:
            answer = self._retrying.run(
                attempt, size_bytes=size_bytes, attempts=int(is_trial), again=lambda: self._tally.add(retries=1)
            )
        except TransportError as error:
            self._failed(access, error, is_trial=is_trial)
            raise
        except BaseException:
            if is_trial:
                with self._lock:
                    self._breaker.end_trial()
            raise
        self._succeeded(is_trial=is_trial)
        return answer

    def allow_trial(self) -> None:
        """Let the next request try a server that keeps failing."""
        with self._lock:
            if self._comes_back:
                self._breaker.allow_trial(self._clock())

    def tell_last_failure(self) -> None:
        """Report why requests failed, unless that was reported or the server has answered since."""
        error, self._untold = self._untold, None
        if error is not None and not self._has_told_failure:
            self._tell_failure(error)

    def _begin(self, access: Access) -> bool:
        """Whether the request that is about to be made is a trial. Raises TransportError if it must not be made."""
        with self._lock:
            if access not in self._off:
                if not self._breaker.is_open:
                    return False
                if self._breaker.begin_trial(self._clock()):
                    return True
        raise TransportError(f"{self.address} is not used because it keeps failing", kind=ErrorKind.OFF)

    def _sleep(self, seconds: float) -> bool:
        """Wait before a retry. False if the server is left alone meanwhile."""
        return not self._is_left_alone() and self._pause(seconds) and not self._is_left_alone()

    def _is_left_alone(self) -> bool:
        return Access.READ in self._off or self._breaker.is_open

    def _succeeded(self, *, is_trial: bool) -> None:
        with self._lock:
            self.has_answered = True
            self._untold = None
            is_back = self._breaker.succeeded(self._clock(), is_trial=is_trial)
        if is_back:
            if self._told_openings <= _MOST_TOLD:
                self._warn(f"the remote cache {self.address} answers again")
            self._on_recovery()

    def _failed(self, access: Access, error: TransportError, *, is_trial: bool) -> None:
        self._tally.add(failures=1)
        if error.kind is ErrorKind.ITEM:
            self._succeeded(is_trial=is_trial)  # The server has answered.
            return
        if self._stopped.is_set():
            return  # What was cut off here says nothing about the server.
        disabled = f"disabled for this {self._purpose}"
        if error.kind is ErrorKind.TRANSIENT:
            with self._lock:
                is_opened = self._breaker.failed(self._clock(), is_trial=is_trial)
                self._told_openings += is_opened
            if is_opened and self._told_openings <= _MOST_TOLD:
                then = f"the {self._purpose} continues without it and tries it again later"
                self._tell(f"keeps failing; {then if self._comes_back else disabled}", error)
            elif not self._has_told_failure:
                self._tell_failure(error)
        elif error.kind is ErrorKind.DENIED and access is Access.WRITE:
            self._turn_off(Access.WRITE, f"denied an upload; uploads are {disabled}", error)
        else:
            why = "denied access" if error.kind is ErrorKind.DENIED else "cannot be used"
            self._turn_off(Access.READ, f"{why}; {disabled}", error)

    def _turn_off(self, access: Access, told: str, error: TransportError) -> None:
        with self._lock:
            self._breaker.end_trial()
            if access in self._off:
                return
            self._off.update([Access.WRITE] if access is Access.WRITE else Access)
        self._tell(told, error)

    def _tell_failure(self, error: TransportError) -> None:
        self._has_told_failure = True
        self._warn(f"the remote cache {self.address} failed; the {self._purpose} continues {self._goes_on}: {error}")

    def _tell(self, told: str, error: TransportError) -> None:
        self._has_told_failure = True
        self._warn(f"the remote cache {self.address} {told}: {error}")
