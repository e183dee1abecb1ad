"""The scheduler step by step: what it answers to what it is told."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import (
    Action,
    Artifact,
    CachePolicy,
    DerivedArtifact,
    DiscoveredArtifacts,
    Discoverer,
    Discovery,
    ExecutionRequirements,
    Input,
    SourceArtifact,
    ToolCall,
)
from mlcbuild.engine.executor import ExecutionOutcome, FileEntry, OutcomeKind
from mlcbuild.engine.instructions import (
    Cancel,
    Deliver,
    DigestSources,
    Discover,
    Ending,
    Execute,
    Finished,
    Instruction,
    LookUp,
    Publish,
    ReportAction,
    ReportTarget,
)
from mlcbuild.engine.invariants import validate
from mlcbuild.engine.scheduler import Scheduler
from mlcbuild.engine.stimuli import (
    ActionsAdded,
    ActionsDiscovered,
    BlobsMissing,
    Cancelled,
    Executed,
    ExecutorLost,
    JobsAdded,
    LookUpSlow,
    ResultFound,
    ResultNotFound,
    SourceDigested,
    Stimulus,
    Target,
    TargetDelivered,
    TargetsRequested,
)
from mlcbuild.errors import InternalError

sys.path.insert(0, str(Path(__file__).parent))
from random_builds import digest_of, key_of


def action(
    identifier: str,
    *inputs: Artifact,
    mnemonic: str = "",
    outputs: tuple[str, ...] = ("out",),
    cpus: int = 1,
    cache: CachePolicy = CachePolicy.ALL,
    discoverer: Discoverer | None = None,
    owner: str = "//a:b",
) -> Action:
    placed = []
    for index, artifact in enumerate(inputs):
        many = isinstance(artifact, DiscoveredArtifacts) or artifact.path.endswith("/")
        placed.append(Input(path=f"in{index}/" if many else f"in{index}", artifact=artifact))
    return Action(
        identifier=identifier,
        mnemonic=mnemonic or identifier,
        owner=owner,
        inputs=tuple(placed),
        outputs=outputs,
        command=ToolCall(arguments=("tool",)),
        cache=cache,
        requirements=ExecutionRequirements(cpus=cpus),
        manifest="manifest" if discoverer else "",
        discoverer=discoverer,
    )


def out(identifier: str, path: str = "out") -> DerivedArtifact:
    return DerivedArtifact(action=identifier, path=path)


class Steps:
    """Tells a scheduler things one by one, and keeps what it has answered since the last look."""

    def __init__(self, actions: Sequence[Action], *wanted: Artifact, jobs: int = 2, keep_going: bool = False) -> None:
        self.scheduler = Scheduler(
            key_of=key_of,
            jobs=jobs,
            keep_going=keep_going,
            seconds_of=lambda action: {"slow": 100.0}.get(action.mnemonic, 1.0),
            rewind_limit=3,
            loss_limit=2,
        )
        outputs = tuple((f"o{index}", artifact) for index, artifact in enumerate(wanted))
        self.answers: list[Instruction] = []
        self.reports: dict[str, ReportAction] = {}
        self.tell(ActionsAdded(actions=tuple(actions)))
        self.tell(TargetsRequested(targets=(Target(label="//t:t", directory="t", outputs=outputs),)))

    def tell(self, *told: Stimulus) -> list[Instruction]:
        self.answers = self.scheduler.handle(*told)
        validate(self.scheduler)
        self.reports |= {a.action.identifier: a for a in self.answers if isinstance(a, ReportAction)}
        return self.answers

    def miss(self, *identifiers: str) -> list[Instruction]:
        """The look-ups of these find nothing."""
        return self.tell(*(ResultNotFound(identifier=i, key=self._key(i)) for i in identifiers))

    def hit(self, identifier: str, text: str) -> list[Instruction]:
        entries = (FileEntry(path="out", digest=digest_of(text)),)
        return self.tell(ResultFound(identifier=identifier, key=self._key(identifier), outputs=entries))

    def succeed(self, identifier: str, **texts: str) -> list[Instruction]:
        entries = tuple(FileEntry(path=path, digest=digest_of(text)) for path, text in sorted(texts.items()))
        return self.end(identifier, OutcomeKind.SUCCEEDED, outputs=entries)

    def end(
        self,
        identifier: str,
        kind: OutcomeKind,
        *,
        outputs: tuple[FileEntry, ...] = (),
        missing: Sequence[str] = (),
    ) -> list[Instruction]:
        gone = tuple(digest_of(text) for text in missing)
        outcome = ExecutionOutcome(identifier=identifier, kind=kind, outputs=outputs, missing=gone, message="it broke")
        return self.tell(Executed(outcome=outcome))

    def started(self) -> list[str]:
        return [a.action.identifier for a in self.answers if isinstance(a, Execute)]

    def looked_up(self) -> list[str]:
        return [a.action.identifier for a in self.answers if isinstance(a, LookUp)]

    def kinds(self) -> list[type]:
        return [type(answer) for answer in self.answers]

    def _key(self, identifier: str) -> Digest:
        key = self.scheduler.graph.actions[identifier].key
        assert key is not None
        return key


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


def test_equal_keys_share_one_look_up_and_one_run() -> None:
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


def test_a_follower_is_skipped_when_its_leader_fails() -> None:
    steps = Steps([action(n, mnemonic="same") for n in "ab"], out("a"), out("b"), keep_going=True)
    steps.miss("a")
    steps.end("a", OutcomeKind.FAILED)
    assert steps.reports["b"].ending is Ending.SKIPPED
    assert steps.reports["b"].blocked_by == "a"


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


def test_a_lost_blob_makes_its_action_run_again_without_a_look_up() -> None:
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


@dataclass(frozen=True)
class Announce:
    discovery: Discovery

    def __call__(self, **_: object) -> Discovery:
        return self.discovery


def discovering(*actions: Action, **groups: tuple[Artifact, ...]) -> tuple[Action, Discovery]:
    discovery = Discovery(actions=actions, groups=tuple(groups.items()))
    return action("d", outputs=("manifest",), discoverer=Announce(discovery)), discovery


def discovered(actions: Sequence[Action], found: Discovery, *wanted: Artifact) -> Steps:
    steps = Steps(actions, *wanted, keep_going=True)
    steps.tell(
        ResultFound(
            identifier="d",
            key=steps._key("d"),
            outputs=(FileEntry(path="manifest", digest=digest_of("m")),),
            manifest=b"m",
        )
    )
    assert [answer.inline for answer in steps.answers if isinstance(answer, Discover)] == [b"m"]
    steps.tell(ActionsDiscovered(identifier="d", discovery=found))
    return steps


def test_a_group_is_the_outputs_of_actions_that_were_discovered() -> None:
    d, found = discovering(
        action("x", outputs=("x.o",)), action("y", outputs=("y.o",)), g=(out("x", "x.o"), out("y", "y.o"))
    )
    use = action("use", DiscoveredArtifacts(action="d", group="g"))
    steps = discovered([d, use], found, out("use"))
    assert steps.looked_up() == ["x", "y"]
    steps.miss("x", "y")
    steps.succeed("x", **{"x.o": "1"})
    steps.succeed("y", **{"y.o": "2"})
    steps.miss("use")
    execute = next(answer for answer in steps.answers if isinstance(answer, Execute))
    assert [entry.path for entry in execute.inputs] == ["in0/x.o", "in0/y.o"]


def test_discovering_a_known_action_again_merges_but_for_its_owner() -> None:
    d, found = discovering(action("x", owner="//other:owner"), g=(out("x"),))
    steps = discovered([d, action("x")], found, out("d", "manifest"))
    assert steps.reports["d"].ending is Ending.FOUND


def test_discovering_another_action_of_a_known_name_is_an_error() -> None:
    d, found = discovering(action("x", mnemonic="different"), g=(out("x"),))
    steps = discovered([d, action("x")], found, out("d", "manifest"))
    assert steps.reports["d"].ending is Ending.FAILED
    assert "'x'" in steps.reports["d"].message


def test_two_members_of_one_base_name_are_rejected() -> None:
    d, found = discovering(action("x"), action("y"), g=(out("x"), out("y")))
    use = action("use", DiscoveredArtifacts(action="d", group="g"))
    steps = discovered([d, use], found, out("use"))
    steps.hit("x", "1")
    steps.hit("y", "1")
    assert steps.reports["use"].ending is Ending.FAILED
    assert "two inputs at one path" in steps.reports["use"].message


def test_a_group_that_was_not_announced_is_an_error_that_names_those_that_were() -> None:
    d, found = discovering(g=())
    steps = discovered([d, action("use", DiscoveredArtifacts(action="d", group="h"))], found, out("use"))
    assert "'h'" in steps.reports["use"].message
    assert "g" in steps.reports["use"].message


def test_a_cycle_among_discovered_actions_is_told_and_the_rest_is_built() -> None:
    d, found = discovering(action("x", out("use")), g=(out("x"),))
    use = action("use", DiscoveredArtifacts(action="d", group="g"))
    steps = discovered([d, use, action("other")], found, out("use"), out("other"))
    assert Finished not in steps.kinds()
    steps.hit("other", "fine")
    failed = [report for report in steps.reports.values() if report.ending is Ending.FAILED]
    assert len(failed) == 1
    assert "use → x → use" in failed[0].message
    assert steps.reports["other"].ending is Ending.FOUND
    assert steps.answers[-1] == Finished(success=False, cancelled=False)


def test_a_directory_is_re_rooted_and_its_files_can_be_wanted_alone() -> None:
    make = action("make", outputs=("d/",))
    use = action("use", out("make", "d/"), out("make", "d/deep/b"))
    steps = Steps([make, use], out("use"))
    steps.miss("make")
    steps.succeed("make", **{"d/a": "1", "d/deep/b": "2"})
    steps.miss("use")
    execute = next(answer for answer in steps.answers if isinstance(answer, Execute))
    assert [entry.path for entry in execute.inputs] == ["in0/a", "in0/deep/b", "in1"]


def test_a_file_that_a_directory_does_not_hold_is_told() -> None:
    steps = Steps([action("make", outputs=("d/",)), action("use", out("make", "d/b"))], out("use"))
    steps.miss("make")
    steps.succeed("make", **{"d/a": "1"})
    assert "d/b" in steps.reports["use"].message


def test_an_input_of_an_action_that_does_not_exist_is_told() -> None:
    steps = Steps([action("a", out("nowhere"))], out("a"))
    assert "'nowhere'" in steps.reports["a"].message


def test_two_different_actions_of_one_name_are_a_bug() -> None:
    with pytest.raises(InternalError, match="'a'"):
        Steps([action("a"), action("a", cpus=3)], out("a"))


def test_an_action_that_waits_for_its_own_leader_is_set_free() -> None:
    # Copies of a copy have one key. The second is running for both when it turns out to need the first.
    first = action("first", SourceArtifact(path="s"), mnemonic="copy")
    second = action("second", out("first"), mnemonic="copy")
    steps = Steps([first, second, action("c", out("second")), action("d", out("first"))], out("c"), out("d"))
    steps.tell(SourceDigested(path="s", digest=digest_of("x")))
    steps.hit("first", "x")
    assert steps.reports["second"].ending is Ending.SHARED
    steps.miss("c", "d")
    steps.end("c", OutcomeKind.INPUTS_MISSING, missing=["x"])
    assert steps.started() == ["second"]
    steps.end("d", OutcomeKind.INPUTS_MISSING, missing=["x"])
    assert steps.started() == []
    steps.end("second", OutcomeKind.INPUTS_MISSING, missing=["x"])
    assert steps.started() == ["first"]
    steps.succeed("first", out="x")
    assert set(steps.started()) <= {"second", "d"}


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


def test_a_manifest_that_is_lost_is_made_again_and_another_one_is_read_anew() -> None:
    d, found = discovering(g=())
    steps = Steps([d], out("d", "manifest"))
    steps.miss("d")
    steps.succeed("d", manifest="one")
    assert Discover in steps.kinds()
    steps.tell(BlobsMissing(needed_by="d", digests=(digest_of("one"),)))
    assert steps.started() == ["d"]
    steps.succeed("d", manifest="one")
    assert Discover in steps.kinds()
    steps.tell(ActionsDiscovered(identifier="d", discovery=found))
    steps.tell(BlobsMissing(needed_by="//t:t", digests=(digest_of("one"),)))
    steps.succeed("d", manifest="one")
    assert Discover not in steps.kinds()  # the same again: already known
    steps.tell(BlobsMissing(needed_by="//t:t", digests=(digest_of("one"),)))
    steps.succeed("d", manifest="two")
    assert Discover in steps.kinds()


def test_a_discovered_action_that_needs_a_failed_one_is_skipped() -> None:
    d, found = discovering(action("x", out("bad")), g=(out("x"),))
    use = action("use", DiscoveredArtifacts(action="d", group="g"))
    steps = Steps([d, use, action("bad")], out("use"), out("bad"), keep_going=True)
    steps.miss("d", "bad")
    steps.end("bad", OutcomeKind.FAILED)
    steps.succeed("d", manifest="m")
    steps.tell(ActionsDiscovered(identifier="d", discovery=found))
    assert [steps.reports[name].blocked_by for name in ("x", "use")] == ["bad", "bad"]
    assert isinstance(steps.answers[-1], Finished)


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


def slow_look_up() -> tuple[Steps, ResultFound]:
    steps = Steps([action("a")], out("a"))
    key = next(answer.key for answer in steps.answers if isinstance(answer, LookUp))
    steps.tell(LookUpSlow(identifier="a"))
    assert steps.started() == ["a"]
    outputs = (FileEntry(path="out", digest=digest_of("x")),)
    return steps, ResultFound(identifier="a", key=key, outputs=outputs)


def test_what_a_slow_look_up_finds_takes_the_place_of_the_run() -> None:
    steps, found = slow_look_up()
    assert steps.tell(found) == [Cancel(identifier="a")]
    steps.end("a", OutcomeKind.CANCELLED)
    assert steps.reports["a"].ending is Ending.FOUND


def test_a_run_that_is_done_before_a_slow_look_up_counts() -> None:
    steps, found = slow_look_up()
    steps.succeed("a", out="x")
    assert steps.reports["a"].ending is Ending.EXECUTED
    assert steps.tell(found) == []


def test_a_run_that_is_done_before_it_can_be_stopped_counts() -> None:
    steps, found = slow_look_up()
    steps.tell(found)
    steps.succeed("a", out="x")
    assert steps.reports["a"].ending is Ending.EXECUTED


def test_a_run_that_fails_waits_for_the_look_up_that_it_overtook() -> None:
    steps, found = slow_look_up()
    assert steps.end("a", OutcomeKind.FAILED) == []
    assert "a" not in steps.reports
    steps.tell(found)
    assert steps.reports["a"].ending is Ending.FOUND
    steps, found = slow_look_up()
    steps.end("a", OutcomeKind.FAILED)
    steps.tell(ResultNotFound(identifier="a", key=found.key))
    assert steps.reports["a"].ending is Ending.FAILED
    assert steps.started() == []


def test_a_run_that_fails_after_the_look_up_found_nothing_has_failed() -> None:
    steps, found = slow_look_up()
    steps.tell(ResultNotFound(identifier="a", key=found.key))
    steps.end("a", OutcomeKind.FAILED)
    assert steps.reports["a"].ending is Ending.FAILED


def test_a_slow_look_up_that_finds_nothing_changes_nothing() -> None:
    steps, found = slow_look_up()
    assert steps.tell(ResultNotFound(identifier="a", key=found.key)) == []
    steps.succeed("a", out="x")
    assert steps.reports["a"].ending is Ending.EXECUTED
