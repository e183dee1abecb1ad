"""How long lookups are waited for: as long as their actions take, and longer while the remote goes on answering."""

from __future__ import annotations

from mlcbuild.engine.lookup_timeout import LookupTimeout


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_lookup_is_waited_for_as_long_as_its_action_takes() -> None:
    clock = Clock()
    timeout = LookupTimeout(clock)
    assert timeout.seconds_left() is None
    timeout.asked("first", run_seconds=0.0)
    timeout.answered("first")
    timeout.asked("long", run_seconds=3.0)
    timeout.asked("short", run_seconds=0.01)
    assert timeout.seconds_left() == 0.5
    clock.now += 0.5
    assert timeout.exhausted() == ["short"]
    assert timeout.exhausted() == [], "each is returned once"
    assert timeout.seconds_left() == 2.5
    clock.now += 3.5
    assert timeout.seconds_left() == 0
    assert timeout.exhausted() == ["long"]


def test_the_first_answer_may_take_what_loading_and_connecting_takes() -> None:
    clock = Clock()
    timeout = LookupTimeout(clock)
    timeout.asked("short", run_seconds=0.01)
    timeout.asked("long", run_seconds=10.0)
    assert timeout.seconds_left() == 3.0
    clock.now += 2.9
    assert timeout.exhausted() == []
    clock.now += 0.1
    assert timeout.exhausted() == ["short"]
    assert timeout.seconds_left() == 7.0
    timeout.asked("after", run_seconds=0.01)
    assert timeout.seconds_left() == 0.5, "loading and connecting has been waited for"


def test_who_stands_in_line_while_the_remote_answers_is_not_given_up() -> None:
    clock = Clock()
    timeout = LookupTimeout(clock)
    for number in range(10):
        timeout.asked(str(number), run_seconds=0.0)
    for number in range(8):
        clock.now += 0.4
        timeout.answered(str(number))
        assert timeout.exhausted() == []
    assert timeout.seconds_left() == 0.5
    clock.now += 0.5
    assert timeout.exhausted() == ["8", "9"], "it has gone silent"
