"""A server is left alone after enough failures, not after a single one, and is then tried again from time to time."""

from __future__ import annotations

import math

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


def test_after_a_pause_one_operation_is_a_trial_and_its_success_closes_it() -> None:
    breaker = CircuitBreaker(CircuitBreakerLimits(in_a_row=1, first_pause=5.0))
    assert breaker.failed(100.0)
    assert [breaker.begin_trial(now) for now in (100.0, 104.9, 105.0, 106.0)] == [False, False, True, False]
    assert not breaker.succeeded(106.0)  # one that had begun before
    assert breaker.is_open
    assert breaker.succeeded(107.0, is_trial=True)
    assert not breaker.is_open
    assert breaker.failed(108.0)
    assert not breaker.begin_trial(112.9)
    assert breaker.begin_trial(113.0)


def test_the_pause_doubles_with_each_failed_trial_up_to_the_longest() -> None:
    breaker = CircuitBreaker(CircuitBreakerLimits(in_a_row=1, first_pause=5.0, longest_pause=30.0))
    breaker.failed(0.0)
    now, pauses = 0.0, []
    for _ in range(5):
        began = now
        while not breaker.begin_trial(now):
            now += 1.0
        pauses.append(now - began)
        assert not breaker.failed(now, is_trial=True)
    assert pauses == [5.0, 10.0, 20.0, 30.0, 30.0]
    breaker.allow_trial(now)
    assert breaker.begin_trial(now)
    breaker.end_trial()
    assert breaker.begin_trial(now)


def test_a_failure_that_began_before_ends_no_trial() -> None:
    breaker = CircuitBreaker(CircuitBreakerLimits(in_a_row=1, first_pause=5.0))
    breaker.failed(0.0)
    assert breaker.begin_trial(5.0)
    assert not breaker.failed(6.0)
    assert not breaker.begin_trial(100.0)
    assert breaker.succeeded(101.0, is_trial=True)


def test_without_an_end_of_the_pause_it_stays_open() -> None:
    breaker = CircuitBreaker(CircuitBreakerLimits(in_a_row=1, first_pause=math.inf))
    breaker.failed(0.0)
    assert not breaker.may_try(1e9)


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
