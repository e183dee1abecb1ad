"""How long lookups are waited for: as long as their actions take, and longer while the remote goes on answering."""

from __future__ import annotations

from mlcbuild.engine.lookup_timeout import LookupTimeout


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_lookup_is_waited_for_as_long_as_its_action_takes() -> None:
    clock = Clock()
    patience = LookupTimeout(clock)
    assert patience.seconds_left() is None
    patience.asked("first", run_seconds=0.0)
    patience.answered("first")
    patience.asked("long", run_seconds=3.0)
    patience.asked("short", run_seconds=0.01)
    assert patience.seconds_left() == 0.5
    clock.now += 0.5
    assert patience.exhausted() == ["short"]
    assert patience.exhausted() == [], "each is told once"
    assert patience.seconds_left() == 2.5
    clock.now += 2.5
    assert patience.exhausted() == ["long"]


def test_the_first_answer_may_take_what_loading_and_connecting_takes() -> None:
    clock = Clock()
    patience = LookupTimeout(clock)
    patience.asked("short", run_seconds=0.01)
    patience.asked("long", run_seconds=10.0)
    assert patience.seconds_left() == 3.0
    clock.now += 2.9
    assert patience.exhausted() == []
    clock.now += 0.1
    assert patience.exhausted() == ["short"]
    assert patience.seconds_left() == 7.0
    patience.asked("after", run_seconds=0.01)
    assert patience.seconds_left() == 0.5, "loading and connecting has been waited for"


def test_who_stands_in_line_while_the_remote_answers_is_not_given_up() -> None:
    clock = Clock()
    patience = LookupTimeout(clock)
    for number in range(10):
        patience.asked(str(number), run_seconds=0.0)
    for number in range(8):
        clock.now += 0.4
        patience.answered(str(number))
        assert patience.exhausted() == []
    assert patience.seconds_left() == 0.5
    clock.now += 0.5
    assert patience.exhausted() == ["8", "9"], "it has gone silent"
