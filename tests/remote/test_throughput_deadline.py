"""How long a transfer may take: by the bytes that have moved, in every stretch of it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.cache.remote.settings import Deadlines
from mlcbuild.cache.remote.throughput_deadline import ThroughputDeadline, Watchdog


@dataclass(frozen=True)
class Step:
    """`seconds` pass, then so many bytes move; while they pass we may rest."""

    seconds: int
    count: int
    rests: bool = False


STEPS = st.lists(st.builds(Step, st.integers(0, 30), st.integers(0, 3000), st.booleans()), max_size=30)


class Clock:
    def __init__(self) -> None:
        self.now: Any = Fraction(0)

    def __call__(self) -> float:
        return self.now


def follow(deadline: ThroughputDeadline, clock: Clock, steps: list[Step]) -> list[float]:
    """What is left after each step."""
    left = []
    for step in steps:
        if step.rests:
            with deadline.paused():
                clock.now += step.seconds
        else:
            clock.now += step.seconds
        deadline.moved(step.count)
        left.append(deadline.left)
    return left


def expected(slack: int, rate: int, idle: int, steps: list[Step]) -> list[float]:
    """By looking at every stretch anew: how much longer than its bytes take at the deadline it may still last."""
    left: list[float] = []
    for number in range(1, len(steps) + 1):
        if left and left[-1] == 0:
            left.append(0)
            continue
        taken = [0 if step.rests else step.seconds for step in steps[:number]]
        before = taken[-1]
        stretches = [
            slack + Fraction(sum(step.count for step in steps[begin:number]), rate) - sum(taken[begin:])
            for begin in range(number + 1)
        ]
        # Just before these bytes moved, it may have been over already.
        was = min(
            slack + Fraction(sum(step.count for step in steps[begin : number - 1]), rate) - sum(taken[begin:])
            for begin in range(number)
        )
        is_over = was <= 0 or before >= idle
        shortest: Any = min(idle, *stretches)  # exact: a fraction
        left.append(0 if is_over else shortest)
    return left


@given(slack=st.integers(1, 60), rate=st.integers(1, 500), idle=st.integers(1, 40), steps=STEPS)
def test_every_stretch_of_a_transfer_needs_the_minimum_throughput(
    slack: int, rate: int, idle: int, steps: list[Step]
) -> None:
    clock = Clock()
    deadline = ThroughputDeadline(slack=slack, bytes_per_second=Fraction(rate), idle=idle, clock=clock)  # type: ignore[arg-type]
    assert follow(deadline, clock, steps) == expected(slack, rate, idle, steps)


@given(
    slack=st.integers(1, 60),
    rate=st.integers(1, 500),
    seconds=st.lists(st.integers(0, 59), max_size=50),
    more=st.integers(0, 5),
)
def test_a_transfer_with_the_minimum_throughput_is_never_given_up(
    slack: int, rate: int, seconds: list[int], more: int
) -> None:
    clock = Clock()
    deadline = ThroughputDeadline(slack=slack, bytes_per_second=Fraction(rate), clock=clock)  # type: ignore[arg-type]
    steps = [Step(each % slack, (each % slack) * rate + more) for each in seconds]
    assert all(left == slack for left in follow(deadline, clock, steps))


@given(
    slack=st.integers(1, 60), burst=st.integers(0, 10**12), trickle=st.integers(0, 99), announced=st.integers(0, 10**12)
)
def test_whatever_moved_before_a_trickle_ends_soon(slack: int, burst: int, trickle: int, announced: int) -> None:
    """At a tenth of the deadline and less, within a ninth more than the slack, and the step in which it is noticed."""
    clock = Clock()
    deadline = ThroughputDeadline(slack=slack, bytes_per_second=Fraction(1000), clock=clock)  # type: ignore[arg-type]
    deadline.moved(burst)
    seconds = 0
    while deadline.left:
        clock.now += 1
        deadline.moved(trickle)
        seconds += 1
    assert slack <= seconds <= slack * Fraction(10, 9) + 1
    deadline.moved(announced)
    assert deadline.left == 0, "it is over for good"


def test_silence_ends_it_unless_it_is_expected() -> None:
    clock = Clock()
    deadline = ThroughputDeadline(slack=60, bytes_per_second=100, idle=30, clock=clock)
    assert deadline.left == 30
    clock.now += 29
    deadline.moved(0)
    assert deadline.left == 30
    deadline.allow_silence(in_flight=400)
    assert deadline.left == 35
    clock.now += 35
    assert deadline.left == 0
    deadline.allow_silence(in_flight=400)
    assert deadline.left == 0


def test_no_time_passes_while_it_rests() -> None:
    clock = Clock()
    deadline = ThroughputDeadline(slack=60, idle=30, clock=clock)
    deadline.pause()
    clock.now += 100
    deadline.pause()
    clock.now += 100
    assert deadline.left == 30
    deadline.resume()
    deadline.resume()
    clock.now += 10
    assert deadline.left == 20


def test_a_watch_cuts_when_nothing_is_left_and_not_before() -> None:
    deadline = ThroughputDeadline(slack=0.3, bytes_per_second=1000)
    cut = threading.Event()
    began = time.monotonic()
    with Watchdog(lambda: deadline.left, cut.set) as watch:
        while time.monotonic() < began + 0.5:
            deadline.moved(1000)
            time.sleep(0.01)
        assert not watch.has_cut
        assert cut.wait(5)
    assert watch.has_cut
    with Watchdog(lambda: 10.0, cut.clear) as watch:
        pass
    assert not watch.has_cut
    assert cut.is_set()


@pytest.mark.parametrize(
    ("whole", "rate", "piece"), [(60, 16 << 10, 240 << 10), (60, 100, 1500), (1, 10, 1024), (60, 1e9, 1 << 20)]
)
def test_a_piece_is_waited_for_within_a_quarter_of_the_time(whole: float, rate: float, piece: int) -> None:
    assert Deadlines(total=whole, bytes_per_second=rate).piece_bytes == piece
