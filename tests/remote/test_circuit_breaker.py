"""A server is disabled after enough failures, not after a single one, and then for good."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.cache.remote.circuit_breaker import CircuitBreaker, CircuitBreakerLimits


def test_failures_in_a_row_open_it_once() -> None:
    breaker = CircuitBreaker(CircuitBreakerLimits(in_a_row=3))
    assert [breaker.failed(now) for now in (0.0, 1.0, 2.0, 3.0)] == [False, False, True, False]
    assert breaker.is_open
    breaker.succeeded(4.0)
    assert breaker.is_open


def test_a_success_between_keeps_it_closed() -> None:
    breaker = CircuitBreaker(CircuitBreakerLimits(in_a_row=3, share=0.9, least=10))
    for now in range(100):
        assert not breaker.failed(now)
        assert not breaker.failed(now)
        breaker.succeeded(now)
    assert not breaker.is_open


def test_a_share_of_failures_opens_it_within_the_window_alone() -> None:
    limits = CircuitBreakerLimits(in_a_row=3, share=0.5, least=10, window=60.0)
    slow, fast = CircuitBreaker(limits), CircuitBreaker(limits)
    for number in range(20):
        for breaker, seconds in ((slow, 10.0), (fast, 1.0)):
            breaker.failed(2 * number * seconds)
            breaker.succeeded((2 * number + 1) * seconds)
    assert fast.is_open
    assert not slow.is_open


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 30))))
def test_it_opens_where_its_limits_say_so_and_only_there(told: list[tuple[bool, float]]) -> None:
    limits = CircuitBreakerLimits(in_a_row=4, share=0.6, least=6, window=40.0)
    breaker, now, history = CircuitBreaker(limits), 0.0, list[tuple[float, bool]]()
    opened = False
    for failed, pause in told:
        now += pause
        history.append((now, failed))
        recent = [each for at, each in history if at >= now - limits.window]
        in_a_row = all(each for _, each in history[-4:]) and len(history) >= 4
        opened = opened or (failed and (in_a_row or (len(recent) >= 6 and sum(recent) >= 0.6 * len(recent))))
        if failed:
            breaker.failed(now)
        else:
            breaker.succeeded(now)
        assert breaker.is_open == opened
