"""The scheduler step by step: its instructions after each event."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlcbuild.engine.action import (
    ActionDescription,
    CachePolicy,
    SourceArtifact,
)
from mlcbuild.engine.executor import FileEntry, OutcomeKind
from mlcbuild.engine.instructions import (
    Cancel,
    Deliver,
    DigestSources,
    Ending,
    Execute,
    Finished,
    LookUp,
    Publish,
    ReportAction,
    ReportTarget,
)
from mlcbuild.engine.scheduler import Scheduler
from mlcbuild.engine.scheduler_events import (
    ActionsDeclared,
    Cancelled,
    DeliveryFailed,
    JobsAdded,
    RequestedTarget,
    ResultFound,
    SourceDigested,
    TargetDelivered,
    TargetsRequested,
)
from mlcbuild.errors import InternalError
from tests.engine.random_graphs import digest_of, key_of
from tests.engine.steps import Steps, action, out


def test_an_action_has_a_key_only_when_its_inputs_are_known() -> None:
    steps = Steps([action("a", SourceArtifact(path="s")), action("b", out("a"))], out("b"))
    assert [a for a in steps.answers if isinstance(a, DigestSources)] == [DigestSources(paths=("s",))]
    assert steps.looked_up() == []
    steps.tell(SourceDigested(path="s", digest=digest_of("1")))
    assert steps.looked_up() == ["a"]
    steps.hit("a", "x")
    assert steps.looked_up() == ["b"]
    steps.miss("b")
    assert steps.started() == ["b"]
    steps.succeed("b", out="y")
    assert steps.kinds() == [Publish, ReportAction, Deliver]
    steps.tell(TargetDelivered(label="//t:t"))
    assert steps.answers == [ReportTarget(label="//t:t", success=True), Finished(success=True, cancelled=False)]


def test_what_nothing_needs_is_never_looked_up() -> None:
    steps = Steps([action("a"), action("unneeded", SourceArtifact(path="s"))], out("a"))
    assert steps.looked_up() == ["a"]
    assert not any(isinstance(answer, DigestSources) for answer in steps.answers)


def test_nothing_requested_is_finished_at_once() -> None:
    scheduler = Scheduler(key_of=key_of, jobs=1)
    assert scheduler.handle(TargetsRequested(targets=())) == [Finished(success=True, cancelled=False)]


def test_equal_keys_share_one_lookup_and_one_run() -> None:
    steps = Steps([action(name, mnemonic="same") for name in "abc"], out("a"), out("b"), out("c"))
    assert steps.looked_up() == ["a"]
    steps.miss("a")
    assert steps.started() == ["a"]
    steps.succeed("a", out="x")
    assert [steps.reports[name].ending for name in "abc"] == [Ending.EXECUTED, Ending.SHARED, Ending.SHARED]


def test_measurements_of_equal_keys_each_run() -> None:
    steps = Steps([action(n, mnemonic="same", cache=CachePolicy.NONE) for n in "ab"], out("a"), out("b"))
    assert steps.looked_up() == []
    assert steps.started() == ["a", "b"]
    assert Publish not in [type(answer) for answer in steps.succeed("a", out="x")]


def test_equal_actions_fail_together_and_each_target_is_told_of_its_own() -> None:
    actions = [action(f"//:{n} Lower", mnemonic="Lower", owner=f"//:{n}") for n in "abcd"]
    links = [action(f"//:{n} Link", out(f"//:{n} Lower"), owner=f"//:{n}") for n in "abcd"]
    steps = Steps([*actions, *links], *(out(link.identifier) for link in links), keep_going=True)
    steps.miss("//:a Lower")
    steps.end("//:a Lower", OutcomeKind.FAILED)
    lowers = [steps.reports[one.identifier] for one in actions]
    assert [report.ending for report in lowers] == [Ending.FAILED] * 4
    assert [report.message for report in lowers] == ["it broke"] * 4
    assert [report.shared_with for report in lowers] == ["", *["//:a Lower"] * 3]
    assert lowers[0].shared_by == ("//:b Lower", "//:c Lower", "//:d Lower")
    assert [steps.reports[link.identifier].blocked_by for link in links] == [one.identifier for one in actions]
    assert [steps.reports[link.identifier].message for link in links] == [
        "//:a Lower failed (shared with //:b, //:c and 1 more)",
        "//:b Lower failed (shared with //:a, //:c and 1 more)",
        "//:c Lower failed (shared with //:a, //:b and 1 more)",
        "//:d Lower failed (shared with //:a, //:b and 1 more)",
    ]


def test_equal_actions_of_one_target_are_not_said_to_be_shared() -> None:
    steps = Steps([action(n, mnemonic="same") for n in "ab"], out("a"), out("b"), keep_going=True)
    steps.miss("a")
    steps.end("a", OutcomeKind.FAILED)
    assert [answer.message for answer in steps.answers if isinstance(answer, ReportTarget)] == ["a failed"]


def test_results_say_which_actions_share_them() -> None:
    steps = Steps([action(name, mnemonic="same") for name in "abc"], out("a"), out("b"), out("c"))
    steps.miss("a")
    assert [each.shared_by for each in steps.answers if isinstance(each, Execute)] == [("b", "c")]
    steps.succeed("a", out="x")
    assert steps.reports["a"].shared_by == ("b", "c")
    assert [steps.reports[name].shared_with for name in "abc"] == ["", "a", "a"]


def test_messages_have_the_descriptions_of_actions() -> None:
    described = replace(action("x Compile kernel_9f"), description=ActionDescription(text="add 8×8 (9f)"))
    described = replace(described, mnemonic="Compile", owner="//:x")
    steps = Steps([described, action("b", out(described.identifier))], out("b"), keep_going=True)
    steps.miss(described.identifier)
    steps.end(described.identifier, OutcomeKind.FAILED)
    assert steps.reports["b"].message == "//:x Compile add 8×8 (9f) failed"
    assert steps.reports["b"].blocked_by == described.identifier


def test_no_more_than_jobs_cpus_are_used() -> None:
    actions = [action("a"), action("b", cpus=2), action("c", cpus=99), action("d")]
    steps = Steps(actions, *(out(n) for n in "abcd"), jobs=2)
    steps.miss("a", "b", "c", "d")
    assert steps.started() == ["a"]  # b needs both, and is not overtaken
    steps.succeed("a", out="1")
    assert steps.started() == ["b"]
    steps.succeed("b", out="2")
    assert steps.started() == ["c"]  # more than there are: alone
    steps.succeed("c", out="3")
    assert steps.started() == ["d"]


def test_more_room_is_used_at_once_and_what_runs_keeps_what_it_took() -> None:
    actions = [action("a", cpus=99), action("b"), action("c"), action("d", cpus=3)]
    steps = Steps(actions, *(out(n) for n in "abcd"), jobs=1)
    steps.miss("a", "b", "c", "d")
    assert steps.started() == ["a"]
    steps.tell(JobsAdded(jobs=3))
    assert steps.started() == ["b", "c"]
    steps.tell(JobsAdded(jobs=2))  # there is never less
    steps.succeed("a", out="1")
    assert steps.started() == []
    steps.succeed("b", out="2")
    steps.succeed("c", out="3")
    assert steps.started() == ["d"]


def test_the_longest_path_ahead_runs_first() -> None:
    actions = [action("a"), action("b"), action("c", out("b"), mnemonic="slow"), action("d", out("a"))]
    steps = Steps(actions, out("d"), out("c"), jobs=1)
    steps.miss("a", "b")
    assert steps.started() == ["b"]


def test_without_keep_going_nothing_new_starts_and_running_ones_finish() -> None:
    actions = [action("a"), action("b"), action("c"), action("d", out("a"))]
    steps = Steps(actions, out("b"), out("c"), out("d"), jobs=2)
    steps.miss("a", "b", "c")
    running = steps.started()
    steps.end(running[0], OutcomeKind.FAILED)
    assert steps.started() == []
    assert Finished not in steps.kinds()
    steps.succeed(running[1], out="x")
    assert Publish in steps.kinds()
    assert steps.answers[-1] == Finished(success=False, cancelled=False)
    skipped = [report for report in steps.reports.values() if report.ending is Ending.SKIPPED]
    assert {report.blocked_by for report in skipped} == {running[0]}
    assert len(steps.reports) == 4


def test_a_test_that_fails_stops_nothing_and_makes_the_build_fail() -> None:
    tested = replace(action("test"), is_test=True)
    steps = Steps([tested, action("other"), action("after", out("other"))], out("test"), out("after"))
    steps.miss("test", "other")
    steps.end("test", OutcomeKind.FAILED)
    steps.succeed("other", out="x")
    steps.miss("after")
    assert steps.started() == ["after"]
    steps.succeed("after", out="y")
    assert steps.answers[-1] == Finished(success=False, cancelled=False)


def test_what_a_target_only_builds_is_made_and_not_delivered() -> None:
    target = RequestedTarget(label="//a:test", directory="d", outputs=(), builds=(out("b"),))
    scheduler = Scheduler(key_of=key_of, jobs=1)
    wanted = scheduler.handle(
        ActionsDeclared(actions=(action("a"), action("b", out("a")), action("c"))), TargetsRequested(targets=(target,))
    )
    assert [each.action.identifier for each in wanted if isinstance(each, LookUp)] == ["a"]
    for name in ("a", "b"):
        (lookup,) = [each for each in wanted if isinstance(each, LookUp)]
        assert lookup.action.identifier == name
        entry = FileEntry(path="out", digest=digest_of(name))
        wanted = scheduler.handle(ResultFound(identifier=name, key=lookup.key, outputs=(entry,)))
    (delivered,) = [each for each in wanted if isinstance(each, Deliver)]
    assert (delivered.label, delivered.files) == ("//a:test", ())


def test_what_did_not_start_after_a_failure_is_not_said_to_need_it() -> None:
    actions = [action("bad"), action("after", out("bad")), action("on", out("first")), action("first")]
    steps = Steps(actions, out("after"), out("on"), jobs=1)
    steps.miss("bad", "first")
    started = steps.started()
    steps.end(started[0], OutcomeKind.FAILED)
    failed, other = ("bad", "after"), ("first", "on")
    if started == ["first"]:
        failed, other = ("first", "on"), ("bad", "after")
    stopped = f"the build stopped at the first failure, {failed[0]} (--keep-going builds what does not need it)"
    assert steps.reports[failed[1]].message == f"{failed[0]} failed"
    assert [steps.reports[name].message for name in other] == [stopped, stopped]


def test_a_skipped_action_names_the_failure_that_is_the_cause() -> None:
    actions = [action("a"), action("b", out("a")), action("c", out("b")), action("other")]
    steps = Steps(actions, out("c"), out("other"), keep_going=True)
    steps.miss("a", "other")
    steps.end("a", OutcomeKind.FAILED)
    assert [steps.reports[n].blocked_by for n in "bc"] == ["a", "a"]
    steps.succeed("other", out="x")
    assert steps.reports["other"].ending is Ending.EXECUTED


def test_a_result_without_a_declared_output_counts_as_none() -> None:
    steps = Steps([action("a", outputs=("out", "more"))], out("a"))
    steps.hit("a", "x")
    assert steps.started() == ["a"]
    steps.succeed("a", out="x")
    assert steps.reports["a"].ending is Ending.FAILED
    assert "'more'" in steps.reports["a"].message


def test_an_undeclared_output_is_a_failure() -> None:
    steps = Steps([action("a")], out("a"))
    steps.miss("a")
    steps.succeed("a", out="x", stray="y")
    assert "'stray'" in steps.reports["a"].message


def test_cancelling_stops_what_runs_and_starts_nothing() -> None:
    steps = Steps([action("a"), action("b"), action("c")], out("a"), out("b"), out("c"), jobs=2)
    steps.miss("a", "b", "c")
    running = steps.started()
    steps.tell(Cancelled())
    assert steps.answers == [Cancel(identifier=name) for name in running]
    steps.succeed(running[0], out="x")  # it had finished already: kept
    assert Publish in steps.kinds()
    steps.end(running[1], OutcomeKind.CANCELLED)
    assert steps.answers[-1] == Finished(success=False, cancelled=True)
    assert steps.tell(Cancelled()) == []


def test_a_target_that_cannot_be_delivered_has_failed() -> None:
    steps = Steps([action("a")], out("a"))
    steps.hit("a", "x")
    steps.tell(DeliveryFailed(label="//t:t", message="the disk is full"))
    assert steps.answers == [
        ReportTarget(label="//t:t", success=False, message="the disk is full"),
        Finished(success=False, cancelled=False),
    ]


def test_an_input_of_an_action_that_does_not_exist_is_told() -> None:
    steps = Steps([action("a", out("nowhere"))], out("a"))
    assert "'nowhere'" in steps.reports["a"].message


def test_two_different_actions_of_one_name_are_a_bug() -> None:
    with pytest.raises(InternalError, match="'a'"):
        Steps([action("a"), action("a", cpus=3)], out("a"))
