"""Lookups that take so long that their action is run meanwhile."""

from __future__ import annotations

from mlcbuild.engine.action import Discovery
from mlcbuild.engine.executor import FileEntry, OutcomeKind
from mlcbuild.engine.instructions import (
    Cancel,
    Discover,
    Ending,
    Finished,
    LookUp,
)
from mlcbuild.engine.scheduler_events import (
    ActionsDiscovered,
    LookupSlow,
    ResultFound,
    ResultNotFound,
)
from tests.engine.random_graphs import digest_of
from tests.engine.steps import Steps, action, out


def nothing_discovered(*, discovering: str, manifest: bytes) -> Discovery:
    return Discovery()


def slow_lookup() -> tuple[Steps, ResultFound]:
    steps = Steps([action("a")], out("a"))
    key = next(answer.key for answer in steps.answers if isinstance(answer, LookUp))
    steps.tell(LookupSlow(identifier="a"))
    assert steps.started() == ["a"]
    outputs = (FileEntry(path="out", digest=digest_of("x")),)
    return steps, ResultFound(identifier="a", key=key, outputs=outputs)


def test_what_a_slow_lookup_finds_takes_the_place_of_the_run() -> None:
    steps, found = slow_lookup()
    assert steps.tell(found) == [Cancel(identifier="a")]
    steps.end("a", OutcomeKind.CANCELLED)
    assert steps.reports["a"].ending is Ending.FOUND


def test_a_run_that_is_done_before_a_slow_lookup_counts() -> None:
    steps, found = slow_lookup()
    steps.succeed("a", out="x")
    assert steps.reports["a"].ending is Ending.EXECUTED
    assert steps.tell(found) == []


def test_a_run_that_is_done_before_it_can_be_stopped_counts() -> None:
    steps, found = slow_lookup()
    steps.tell(found)
    steps.succeed("a", out="x")
    assert steps.reports["a"].ending is Ending.EXECUTED


def test_a_run_that_fails_waits_for_the_lookup_that_it_overtook() -> None:
    steps, found = slow_lookup()
    assert steps.end("a", OutcomeKind.FAILED) == []
    assert "a" not in steps.reports
    steps.tell(found)
    assert steps.reports["a"].ending is Ending.FOUND
    steps, found = slow_lookup()
    steps.end("a", OutcomeKind.FAILED)
    steps.tell(ResultNotFound(identifier="a", key=found.key))
    assert steps.reports["a"].ending is Ending.FAILED
    assert steps.started() == []


def test_a_discovering_action_whose_run_fails_takes_what_the_lookup_finds() -> None:
    steps = Steps([action("a", outputs=("manifest",), discoverer=nothing_discovered)], out("a", "manifest"))
    key = next(answer.key for answer in steps.answers if isinstance(answer, LookUp))
    steps.tell(LookupSlow(identifier="a"))
    steps.end("a", OutcomeKind.FAILED)
    outputs = (FileEntry(path="manifest", digest=digest_of("m")),)
    assert [type(answer) for answer in steps.tell(ResultFound(identifier="a", key=key, outputs=outputs))] == [Discover]
    steps.tell(ActionsDiscovered(identifier="a", discovery=Discovery()))
    assert steps.reports["a"].ending is Ending.FOUND


def test_a_stopping_build_does_not_wait_for_a_lookup_that_was_overtaken() -> None:
    steps = Steps([action("a"), action("b")], out("a"), out("b"))
    steps.tell(LookupSlow(identifier="a"))
    steps.miss("b")
    assert steps.end("a", OutcomeKind.FAILED) == []
    steps.end("b", OutcomeKind.FAILED)
    assert steps.reports["a"].ending is Ending.SKIPPED
    assert isinstance(steps.answers[-1], Finished)


def test_a_run_that_fails_after_the_lookup_found_nothing_has_failed() -> None:
    steps, found = slow_lookup()
    steps.tell(ResultNotFound(identifier="a", key=found.key))
    steps.end("a", OutcomeKind.FAILED)
    assert steps.reports["a"].ending is Ending.FAILED


def test_a_slow_lookup_that_finds_nothing_changes_nothing() -> None:
    steps, found = slow_lookup()
    assert steps.tell(ResultNotFound(identifier="a", key=found.key)) == []
    steps.succeed("a", out="x")
    assert steps.reports["a"].ending is Ending.EXECUTED
