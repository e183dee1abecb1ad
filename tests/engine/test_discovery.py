"""Actions and groups that are known only while a build runs, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcbuild.engine.action import (
    Action,
    Artifact,
    DiscoveredArtifacts,
    Discovery,
    SourceArtifact,
)
from mlcbuild.engine.executor import FileEntry, OutcomeKind
from mlcbuild.engine.instructions import (
    Discover,
    Ending,
    Execute,
    Finished,
)
from mlcbuild.engine.scheduler_events import (
    ActionsDiscovered,
    BlobsMissing,
    ResultFound,
    SourceDigested,
)
from tests.engine.random_graphs import digest_of
from tests.engine.steps import Steps, action, out


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
