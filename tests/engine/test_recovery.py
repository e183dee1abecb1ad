"""What the scheduler does after lost blobs, lost executors and too little memory."""

from __future__ import annotations

from mlcbuild.engine.action import (
    CachePolicy,
)
from mlcbuild.engine.executor import ExecutionOutcome, OutcomeKind
from mlcbuild.engine.instructions import (
    Deliver,
    Ending,
    Execute,
    Finished,
)
from mlcbuild.engine.scheduler_events import (
    BlobsMissing,
    Executed,
    ExecutorLost,
)
from tests.engine.random_graphs import digest_of
from tests.engine.steps import Steps, action, out


def test_a_lost_blob_makes_its_action_run_again_without_a_lookup() -> None:
    steps = Steps([action("a"), action("b", out("a"))], out("b"))
    steps.hit("a", "x")
    steps.miss("b")
    steps.end("b", OutcomeKind.INPUTS_MISSING, missing=["x"])
    assert steps.looked_up() == []
    assert steps.started() == ["a"]
    steps.succeed("a", out="x")
    assert steps.started() == ["b"]


def test_rewinding_goes_as_far_back_as_blobs_have_gone() -> None:
    steps = Steps([action("a"), action("b", out("a")), action("c", out("b"))], out("c"))
    steps.hit("a", "x")
    steps.hit("b", "y")
    steps.miss("c")
    steps.end("c", OutcomeKind.INPUTS_MISSING, missing=["y"])
    assert steps.started() == ["b"]
    steps.end("b", OutcomeKind.INPUTS_MISSING, missing=["x"])
    assert steps.started() == ["a"]
    steps.succeed("a", out="x")
    assert steps.started() == ["b"]
    steps.succeed("b", out="y")
    assert steps.started() == ["c"]


def test_blobs_that_keep_going_are_an_error_at_last() -> None:
    steps = Steps([action("a"), action("b", out("a"))], out("b"))
    steps.hit("a", "x")
    steps.miss("b")
    for _ in range(3):
        steps.end("b", OutcomeKind.INPUTS_MISSING, missing=["x"])
        steps.succeed("a", out="x")
    steps.end("b", OutcomeKind.INPUTS_MISSING, missing=["x"])
    assert steps.reports["b"].ending is Ending.FAILED
    assert "4 times" in steps.reports["b"].message
    assert isinstance(steps.answers[-1], Finished)


def test_outputs_that_keep_going_are_an_error_at_last() -> None:
    """Two consumers lose them twice each, which is within the limit of each; their producer loses them 4 times."""
    steps = Steps([action("a"), action("b", out("a")), action("c", out("a"))], out("b"), out("c"))
    steps.hit("a", "x")
    steps.miss("b", "c")
    for consumer in "bcb":
        steps.end(consumer, OutcomeKind.INPUTS_MISSING, missing=["x"])
        steps.succeed("a", out="x")
    steps.end("c", OutcomeKind.INPUTS_MISSING, missing=["x"])
    assert steps.reports["a"].ending is Ending.FAILED
    assert "4 times" in steps.reports["a"].message


def test_an_action_that_finds_nothing_joins_one_of_its_key_that_runs_again() -> None:
    first, second = action("first", out("p"), mnemonic="copy"), action("second", out("q"), mnemonic="copy")
    use, both = action("use", out("first")), action("both", out("second"))
    steps = Steps([action("p"), action("q"), first, second, use, both], out("use"), out("both"), jobs=2)
    steps.hit("p", "x")
    steps.hit("first", "y")
    steps.miss("use")
    steps.end("use", OutcomeKind.INPUTS_MISSING, missing=["y"])
    steps.end("first", OutcomeKind.INPUTS_MISSING, missing=["x"])
    assert steps.started() == ["p"]
    steps.hit("q", "x")
    assert steps.looked_up() == ["second"]  # Its key is that of the first, which waits for its input again.
    steps.succeed("p", out="x")
    assert steps.started() == ["first"]
    steps.miss("second")
    assert steps.started() == []
    steps.succeed("first", out="y")
    assert steps.reports["second"].ending is Ending.SHARED


def test_blobs_lost_before_delivery_are_made_again() -> None:
    steps = Steps([action("a")], out("a"))
    steps.hit("a", "x")
    steps.tell(BlobsMissing(needed_by="//t:t", digests=(digest_of("x"),)))
    assert steps.started() == ["a"]
    steps.succeed("a", out="x")
    assert steps.kinds()[-1] is Deliver


def test_a_lost_executor_is_tried_again_but_not_for_ever() -> None:
    steps = Steps([action("a")], out("a"))
    steps.miss("a")
    for _ in range(2):
        steps.tell(ExecutorLost(identifiers=("a",)))
        assert steps.started() == ["a"]
    steps.end("a", OutcomeKind.LOST)
    assert steps.reports["a"].ending is Ending.FAILED


def test_no_action_starts_while_its_producer_runs_again() -> None:
    steps = Steps([action("a"), action("b", out("a")), action("c", out("a"))], out("b"), out("c"), jobs=1)
    steps.hit("a", "x")
    steps.miss("b", "c")
    assert steps.started() == ["b"]
    steps.end("b", OutcomeKind.INPUTS_MISSING, missing=["x"])
    assert steps.started() == ["a"]  # and not c, which was ready


def test_a_producer_that_makes_other_bytes_the_second_time_leads_to_another_key() -> None:
    steps = Steps([action("a", cache=CachePolicy.NONE), action("b", out("a"))], out("b"))
    steps.succeed("a", out="x")
    steps.miss("b")
    steps.end("b", OutcomeKind.INPUTS_MISSING, missing=["x"])
    steps.succeed("a", out="y")
    assert steps.looked_up() == ["b"]
    steps.miss("b")
    execute = next(answer for answer in steps.answers if isinstance(answer, Execute))
    assert [entry.digest for entry in execute.inputs] == [digest_of("y")]


def test_too_little_memory_is_answered_with_more_and_then_given_up() -> None:
    steps = Steps([action("a")], out("a"))
    steps.miss("a")
    gibibyte = 1 << 30
    asked = []
    for peak in (3 * gibibyte, gibibyte, gibibyte):
        outcome = ExecutionOutcome(
            identifier="a", kind=OutcomeKind.OUT_OF_MEMORY, peak_bytes=peak, message="the machine had no more"
        )
        answers = steps.tell(Executed(outcome=outcome))
        asked += [answer.memory_bytes for answer in answers if isinstance(answer, Execute)]
    assert asked == [6 * gibibyte, 12 * gibibyte]
    assert steps.reports["a"].message == "the machine had no more"
