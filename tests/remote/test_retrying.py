"""A request is made again after a transient error, a few times after random pauses, and after no other error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.cache.remote.retrying import Retrying, RetryPolicy
from mlcbuild.cache.remote.transport import ErrorKind, TransportError
from tests.remote.memory_transport import Clock, transient


class Server:
    """Fails so often with what it is given, then answers."""

    def __init__(self, *errors: Exception, clock: Clock | None = None, takes: float = 0.0) -> None:
        self.errors = list(errors)
        self.calls = 0
        self.clock = clock
        self.takes = takes

    def __call__(self) -> str:
        self.calls += 1
        if self.clock is not None:
            self.clock.now += self.takes
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def retrying(policy: RetryPolicy, clock: Clock, *, seed: int = 0) -> Retrying:
    return Retrying(policy, clock=clock, sleep=clock.sleep, seed=seed)


def test_a_transient_error_is_tried_again_and_each_further_attempt_told() -> None:
    clock, server, told = Clock(), Server(transient("one"), transient("two")), []
    assert retrying(RetryPolicy(), clock).run(server, again=lambda: told.append(1)) == "answer"
    assert (server.calls, len(told), len(clock.slept)) == (3, 2, 2)


@given(attempts=st.integers(1, 8), seed=st.integers(0, 1000), count=st.integers(0, 10))
def test_attempts_are_bounded(attempts: int, seed: int, count: int) -> None:
    clock, server = Clock(), Server(*[transient(str(number)) for number in range(count)])
    policy = RetryPolicy(attempts=attempts)
    if count < attempts:
        assert retrying(policy, clock, seed=seed).run(server, again=lambda: None) == "answer"
    else:
        with pytest.raises(TransportError, match=str(attempts - 1)):
            retrying(policy, clock, seed=seed).run(server, again=lambda: None)
    assert server.calls == min(attempts, count + 1)


@pytest.mark.parametrize("kind", [ErrorKind.DENIED, ErrorKind.UNUSABLE])
def test_other_errors_are_not_tried_again(kind: ErrorKind) -> None:
    server = Server(TransportError("no", kind=kind))
    with pytest.raises(TransportError):
        retrying(RetryPolicy(), Clock()).run(server, again=lambda: None)
    assert server.calls == 1


@given(failed=st.integers(1, 2000), chance=st.floats(0, 1, exclude_max=True), asked=st.floats(0, 100))
def test_pauses_grow_up_to_a_limit_and_keep_to_what_the_server_asks(failed: int, chance: float, asked: float) -> None:
    policy = RetryPolicy(first=0.5, longest=8.0)
    assert policy.pause(failed, chance, 0.0) <= min(8.0, 0.5 * 2 ** min(failed - 1, 10))
    assert policy.pause(failed, chance, asked) >= asked


def test_pauses_are_spread_by_chance() -> None:
    pauses = set()
    for seed in range(20):
        clock = Clock()
        retrying(RetryPolicy(), clock, seed=seed).run(Server(transient("")), again=lambda: None)
        pauses.update(clock.slept)
    assert len(pauses) == 20


def test_no_attempt_begins_after_the_deadline() -> None:
    clock = Clock()
    server = Server(*[transient("")] * 9, clock=clock, takes=25.0)
    with pytest.raises(TransportError):
        retrying(RetryPolicy(attempts=9, total=60.0), clock).run(server, again=lambda: None)
    assert server.calls == 3


def test_a_server_that_asks_for_more_time_than_there_is_gets_no_further_attempt() -> None:
    server = Server(transient("", retry_after=3600.0))
    clock = Clock()
    with pytest.raises(TransportError):
        retrying(RetryPolicy(), clock).run(server, again=lambda: None)
    assert (server.calls, clock.slept) == (1, [])


def test_large_blobs_have_more_time() -> None:
    clock = Clock()
    server = Server(*[transient("")] * 2, clock=clock, takes=50.0)
    assert retrying(RetryPolicy(), clock).run(server, size_bytes=1 << 30, again=lambda: None) == "answer"


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first": -1.0}, {"total": float("inf")}, {"bytes_per_second": 0}])
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong))) if "attempts" not in wrong else "attempt"):
        RetryPolicy(**wrong)  # type: ignore[arg-type]
