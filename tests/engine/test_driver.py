"""Whole builds: a real store, real files, shell scripts as actions."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from mlcbuild.engine.action import (
    Action,
    ActionDescription,
    CachePolicy,
    DerivedArtifact,
    DiscoveredArtifacts,
    Discovery,
    SourceArtifact,
)
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionStatus,
    BuildFinished,
    BuildStarted,
    Notice,
    TargetFinished,
    TargetSkipped,
)
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, OutcomeKind
from mlcbuild.errors import BuildError, InterruptedBuildError, LocalEnvironmentError
from tests.engine.small_workspace import NoStages, NoToolchains, Workspace, shell, target


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def chain() -> list[Action]:
    upper = shell("upper", "tr a-z A-Z < in > out", [("in", SourceArtifact(path="a.txt"))])
    first = shell("first", "head -c 1 in > out", [("in", upper.output("out"))])
    double = shell("double", "cat x x > out", [("x", first.output("out"))])
    other = shell("other", "cat y > out", [("y", SourceArtifact(path="b.txt"))])
    return [double, upper, other, first]


def test_a_second_build_runs_nothing_and_finds_everything_up_to_date(workspace: Workspace) -> None:
    workspace.write("a.txt", "hello")
    actions = chain()
    wanted = target("//p:t", actions[0].output("out"))
    first = workspace.build(actions, wanted)
    assert first.success
    assert workspace.text("out/p/t/out0") == "HH"
    assert workspace.executed() == {"upper", "first", "double"}  # and not `other`, which nothing needs
    second = workspace.build(actions, wanted)
    assert second.success
    assert set(workspace.statuses().values()) == {ActionStatus.UP_TO_DATE}
    assert len(workspace.statuses()) == 3
    assert second.targets[0].outputs == ("out/p/t/out0",)
    assert second.critical_path == ()


def test_an_edit_runs_what_it_must_and_stops_where_bytes_are_equal(workspace: Workspace) -> None:
    workspace.write("a.txt", "hello")
    actions = chain()
    wanted = target("//p:t", actions[0].output("out"))
    workspace.build(actions, wanted)
    workspace.write("a.txt", "hallo")
    workspace.build(actions, wanted)
    statuses = workspace.statuses()
    assert statuses == {
        "upper": ActionStatus.EXECUTED_LOCAL,
        "first": ActionStatus.EXECUTED_LOCAL,
        "double": ActionStatus.UP_TO_DATE,  # the first letter is the same: early cutoff
    }
    workspace.write("a.txt", "hello")
    workspace.build(actions, wanted)
    assert workspace.statuses()["upper"] is ActionStatus.DISK_HIT


def test_a_lost_blob_is_made_again_by_its_action(workspace: Workspace) -> None:
    workspace.write("a.txt", "hello")
    workspace.write("b.txt", "bee")
    actions = chain()
    both = shell("both", "cat p q > out", [("p", actions[0].output("out")), ("q", SourceArtifact(path="b.txt"))])
    workspace.build([*actions, both], target("//p:t", both.output("out")))
    lost = workspace.store.function.of_bytes(b"HH")
    workspace.store.path_of(lost).unlink()
    workspace.write("b.txt", "sea")
    result = workspace.build([*actions, both], target("//p:t", both.output("out")))
    assert result.success
    assert workspace.text("out/p/t/out0") == "HHsea"
    assert workspace.executed() == {"double", "both"}


def test_lost_blobs_of_a_whole_chain_are_made_again_for_the_outputs(workspace: Workspace) -> None:
    workspace.write("a.txt", "hello")
    actions = chain()
    wanted = target("//p:t", actions[0].output("out"))
    workspace.build(actions, wanted)
    for content in (b"HELLO", b"H", b"HH"):
        workspace.store.path_of(workspace.store.function.of_bytes(content)).unlink()
    output = workspace.root / "workspace" / "out/p/t/out0"
    output.unlink()
    result = workspace.build(actions, wanted)
    assert result.success
    assert output.read_text() == "HH"
    assert workspace.executed() == {"upper", "first", "double"}


def test_a_source_whose_blob_has_gone_is_stored_again(workspace: Workspace) -> None:
    workspace.write("a.txt", "hello")
    actions = chain()
    wanted = target("//p:t", actions[0].output("out"))
    workspace.build(actions, wanted)
    for content in (b"hello", b"HELLO", b"H"):
        workspace.store.path_of(workspace.store.function.of_bytes(content)).unlink()
    longer = shell("longer", "cat in in > out", [("in", actions[1].output("out"))])
    result = workspace.build([*actions, longer], target("//p:u", longer.output("out")))
    assert result.success
    assert workspace.text("out/p/u/out0") == "HELLOHELLO"


def test_source_files_can_be_outputs_of_a_target(workspace: Workspace) -> None:
    workspace.write("data/a.txt", "hello")
    result = workspace.build([], target("//p:files", SourceArtifact(path="data/a.txt")))
    assert result.success
    assert workspace.text("out/p/files/out0") == "hello"


def test_a_failed_action_is_told_with_its_log_and_never_kept(workspace: Workspace) -> None:
    bad = shell("bad", "echo it went wrong; exit 3")
    after = shell("after", "cat in > out", [("in", bad.output("out"))])
    for _ in range(2):
        result = workspace.build([bad, after], target("//p:t", after.output("out")))
        assert not result.success
        statuses = workspace.statuses()
        assert statuses == {"bad": ActionStatus.FAILED, "after": ActionStatus.SKIPPED}
        failed = next(e for e in workspace.events if isinstance(e, ActionFinished) and e.identifier == "bad")
        assert failed.log == b"it went wrong\n"
        assert failed.exit_code == 3
        assert result.failures[0].identifier == "bad"
        assert "bad" in result.targets[0].error
        assert isinstance(result.error(), BuildError)


def test_an_output_that_was_not_made_fails_the_action(workspace: Workspace) -> None:
    result = workspace.build([lazy := shell("lazy", "true")], target("//p:t", lazy.output("out")))
    assert not result.success
    assert "'out'" in result.failures[0].message


def test_an_empty_output_directory_is_a_result(workspace: Workspace) -> None:
    empty = shell("empty", "true", outputs=("dir/",))
    count = shell("count", "ls -A d 2>/dev/null | wc -l > out", [("d/", empty.output("dir/"))])
    assert workspace.build([empty, count], target("//p:t", count.output("out"))).success
    assert workspace.text("out/p/t/out0").strip() == "0"
    assert workspace.build([empty, count], target("//p:t", count.output("out"))).success
    assert set(workspace.statuses().values()) == {ActionStatus.UP_TO_DATE}


def test_keep_going_builds_what_does_not_depend_on_the_failure(workspace: Workspace) -> None:
    workspace.keep_going = True
    workspace.driver = workspace.new_driver()
    bad = shell("bad", "exit 1")
    good = shell("good", "echo fine > out")
    result = workspace.build([bad, good], target("//p:bad", bad.output("out")), target("//p:good", good.output("out")))
    assert [item.success for item in result.targets] == [False, True]
    assert workspace.text("out/p/good/out0") == "fine\n"


def test_equal_actions_in_flight_run_once(workspace: Workspace) -> None:
    twins = [shell(f"twin{index}", "sleep 0.1; echo same > out") for index in range(5)]
    result = workspace.build(twins, target("//p:t", *(twin.output("out") for twin in twins)))
    assert result.success
    assert sum(workspace.last_executor.runs.values()) == 1
    assert sorted(status.value for status in workspace.statuses().values()) == ["disk_hit"] * 4 + ["executed_local"]


def test_a_measurement_is_never_kept(workspace: Workspace) -> None:
    measure = shell("measure", "echo 1 > out", cache=CachePolicy.NONE)
    use = shell("use", "cat in > out", [("in", measure.output("out"))])
    for _ in range(2):
        workspace.build([measure, use], target("//p:t", use.output("out")))
        assert "measure" in workspace.executed()
    assert workspace.statuses()["use"] is ActionStatus.UP_TO_DATE


@dataclass(frozen=True)
class OneAPart:
    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        actions = tuple(
            shell(f"{discovering} {name}", "cat in in > out", [("in", DerivedArtifact(action=discovering, path=name))])
            for name in manifest.decode().split()
        )
        renamed = tuple(
            shell(f"{a.identifier} named", f"cat in > n{i}", [("in", a.output("out"))], (f"n{i}",))
            for i, a in enumerate(actions)
        )
        members = tuple(action.output(action.outputs[0]) for action in renamed)
        return Discovery(actions=(*actions, *renamed), groups=(("doubled", members),))


def test_discovered_actions_are_built_and_found_again(workspace: Workspace) -> None:
    workspace.write("parts", "x y z")
    split = shell(
        "split",
        "for p in $(cat in); do echo $p > parts/$p; echo parts/$p >> manifest; done",
        [("in", SourceArtifact(path="parts"))],
        ("manifest", "parts/"),
        discoverer=OneAPart(),
    )
    join = shell("join", "cat d/* > out", [("d/", DiscoveredArtifacts(action="split", group="doubled"))])
    wanted = target("//p:t", join.output("out"))
    assert workspace.build([split, join], wanted).success
    assert workspace.text("out/p/t/out0").split() == ["x", "x", "y", "y", "z", "z"]
    assert len(workspace.executed()) == 8
    workspace.build([split, join], wanted)
    assert set(workspace.statuses().values()) == {ActionStatus.UP_TO_DATE}
    assert len(workspace.statuses()) == 8
    workspace.write("parts", "x w z")
    workspace.build([split, join], wanted)
    assert workspace.executed() == {"split", "split parts/w", "split parts/w named", "join"}


def test_a_manifest_that_cannot_be_read_fails_its_action(workspace: Workspace) -> None:
    def refuse(*, discovering: str, manifest: bytes) -> Discovery:
        raise ValueError("version 9")

    split = shell("split", "echo > manifest", (), ("manifest",), discoverer=refuse)
    join = shell("join", "true", [("d/", DiscoveredArtifacts(action="split", group="g"))])
    result = workspace.build([split, join], target("//p:t", join.output("out")))
    assert result.failures[0].identifier == "split"
    assert "version 9" in result.failures[0].message


def test_a_source_that_changes_while_an_action_runs_fails_it(workspace: Workspace) -> None:
    workspace.write("a.txt", "hello")
    actions = chain()
    workspace.executor.after = lambda _: workspace.write("a.txt", "changed")
    result = workspace.build(actions, target("//p:t", actions[0].output("out")))
    assert not result.success
    assert "'a.txt' changed during the build" in result.failures[0].message
    assert workspace.build(actions, target("//p:t", actions[0].output("out"))).success
    assert workspace.text("out/p/t/out0") == "CC"


def test_a_missing_source_is_the_failure_of_who_needs_it(workspace: Workspace) -> None:
    actions = chain()
    result = workspace.build(actions, target("//p:t", actions[0].output("out")))
    assert not result.success
    assert result.failures[0].identifier == "upper"
    assert "a.txt" in result.failures[0].message


def test_an_action_whose_executor_was_lost_runs_again(workspace: Workspace) -> None:
    lost: list[str] = []

    def lose_once(request: ExecutionRequest) -> ExecutionOutcome | None:
        if lost:
            return None
        lost.append(request.identifier)
        return ExecutionOutcome(
            identifier=request.identifier, kind=OutcomeKind.LOST, message="the worker that ran only died"
        )

    workspace.executor.before = lose_once
    only = shell("only", "echo 1 > out").described(ActionDescription(text="add n×8"))
    result = workspace.build([only], target("//p:t", only.output("out")))
    assert result.success
    assert workspace.last_executor.runs == {"only": 2}
    assert [event.message for event in workspace.events if isinstance(event, Notice)] == [
        f"{only.title} runs again: the worker that ran {only.title} died"
    ]


def test_trouble_of_the_machine_is_told_as_such(workspace: Workspace) -> None:
    workspace.executor.before = lambda request: ExecutionOutcome(
        identifier=request.identifier, kind=OutcomeKind.ENVIRONMENT, message="no space left"
    )
    result = workspace.build([only := shell("only", "true")], target("//p:t", only.output("out")))
    assert isinstance(result.error(), LocalEnvironmentError)


def test_an_interrupt_cancels_what_runs_and_keeps_what_has_finished(workspace: Workspace) -> None:
    quick = shell("quick", "echo quick > out")
    slow = shell("slow", "cat in; sleep 30; echo slow > out", [("in", quick.output("out"))])
    driver = workspace.driver
    workspace.executor.before = lambda request: (
        threading.Timer(0.2, driver.interrupt).start() if request.identifier == "slow" else None
    )
    began = time.monotonic()
    result = workspace.build([quick, slow], target("//p:t", slow.output("out")))
    assert time.monotonic() - began < 10
    assert result.interrupted
    assert isinstance(result.error(), InterruptedBuildError)
    assert workspace.statuses() == {"quick": ActionStatus.EXECUTED_LOCAL, "slow": ActionStatus.SKIPPED}
    assert not (workspace.root / "workspace/out/p/t").exists()
    finished = workspace.events[-1]
    assert isinstance(finished, BuildFinished)
    assert finished.interrupted
    temporaries = list((workspace.root / "store").glob("v1/*/tmp/*"))
    assert temporaries == []
    workspace.build([quick], target("//p:q", quick.output("out")))
    assert workspace.statuses() == {"quick": ActionStatus.UP_TO_DATE}


def test_a_signal_interrupts_from_inside_the_waiting_loop(workspace: Workspace) -> None:
    slow = shell("slow", "sleep 30")
    driver = workspace.driver
    before = signal.signal(signal.SIGINT, lambda *_: driver.interrupt())
    try:
        workspace.executor.before = lambda _: threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        result = workspace.build([slow], target("//p:t", slow.output("out")))
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.interrupted


def test_a_second_interrupt_does_not_wait_for_an_executor_that_does_not_stop(workspace: Workspace) -> None:
    stubborn = shell("stubborn", "sleep 30")
    driver, executor = workspace.driver, workspace.executor
    real_cancel, closed = executor.cancel, list[bool]()
    executor.cancel = lambda identifier: real_cancel(identifier) if closed else None  # type: ignore[method-assign]
    real_close = executor.close

    def close() -> None:
        closed.append(True)
        real_close()

    executor.close = close  # type: ignore[method-assign]

    def interrupt_twice(request: ExecutionRequest) -> None:
        threading.Timer(0.2, driver.interrupt).start()
        threading.Timer(0.4, driver.interrupt).start()

    executor.before = interrupt_twice
    began = time.monotonic()
    result = workspace.build([stubborn], target("//p:t", stubborn.output("out")))
    assert result.interrupted
    assert time.monotonic() - began < 10


def test_the_story_of_a_build_is_told_in_order(workspace: Workspace) -> None:
    workspace.write("a.txt", "hello")
    actions = chain()
    result = workspace.build(actions, target("//p:t", actions[0].output("out")))
    kinds = [type(event) for event in workspace.events]
    assert kinds[0] is BuildStarted
    assert kinds[-2:] == [TargetFinished, BuildFinished]
    times = [event.time for event in workspace.events if not isinstance(event, TargetSkipped)]
    assert times == sorted(times)
    assert [step.identifier for step in result.critical_path] == ["upper", "first", "double"]
    assert dict(result.counts)[ActionStatus.EXECUTED_LOCAL] == 3


def test_no_more_than_jobs_run_at_once(workspace: Workspace) -> None:
    many = [shell(f"m{index}", f"sleep 0.05; echo {index} > out") for index in range(8)]
    workspace.build(many, target("//p:t", *(action.output("out") for action in many)))
    assert workspace.last_executor.most_at_once <= 2


def test_a_result_that_cannot_be_kept_fails_no_build(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcbuild.cache.digest import Digest
    from mlcbuild.cache.reapi import ActionResult
    from mlcbuild.errors import CacheError

    def refuse(key: Digest, result: ActionResult) -> None:
        raise CacheError("writing to the store failed")

    monkeypatch.setattr(workspace.store, "put", refuse)
    only = shell("only", "echo 1 > out")
    assert workspace.build([only], target("//p:t", only.output("out"))).success
    assert any(isinstance(event, Notice) and "only" in event.message for event in workspace.events)


def test_a_result_that_has_left_the_action_cache_is_not_up_to_date(workspace: Workspace) -> None:
    only = shell("only", "echo 1 > out")
    workspace.build([only], target("//p:t", only.output("out")))
    for entry in (workspace.root / "store").glob("v1/*/ac/*/*"):
        entry.unlink()
    workspace.build([only], target("//p:t", only.output("out")))
    assert workspace.executed() == {"only"}


def test_the_action_cache_alone_is_enough_in_a_workspace_that_remembers_nothing(workspace: Workspace) -> None:
    workspace.write("a.txt", "hello")
    actions = chain()
    workspace.build(actions, target("//p:t", actions[0].output("out")))
    for state in (workspace.root / "workspace" / ".mlcbuild").iterdir():
        state.unlink()
    workspace.driver = workspace.new_driver()
    result = workspace.build(actions, target("//p:t", actions[0].output("out")))
    assert result.success
    assert set(workspace.statuses().values()) == {ActionStatus.DISK_HIT}


def test_the_local_executor_builds_what_the_driver_asks_for(tmp_path: Path) -> None:
    from mlcbuild.cache.digest import DigestFunction
    from mlcbuild.cache.disk import DiskStore
    from mlcbuild.cache.file_digests import FileDigests
    from mlcbuild.engine.action import Input, ToolCall
    from mlcbuild.engine.driver import Driver
    from mlcbuild.engine.last_build import LastBuild
    from mlcbuild.engine.outputs import OutputPlacer
    from mlcbuild.execution.local import LocalExecutor

    (tmp_path / "a.txt").write_text("hello")
    store = DiskStore(tmp_path / "store", DigestFunction.BLAKE3)
    upper = Action(
        identifier="upper",
        mnemonic="Shell",
        owner="//p:t",
        inputs=(Input(path="in", artifact=SourceArtifact(path="a.txt")),),
        outputs=("out",),
        command=ToolCall(arguments=("/bin/sh", "-c", "tr a-z A-Z < in > out")),
    )
    driver = Driver(
        workspace=tmp_path,
        store=store,
        toolchains=NoToolchains(),
        implementations=NoStages(),
        executors=(LocalExecutor(store, jobs=1, scratch=tmp_path / "scratch"),),
        digests=FileDigests(tmp_path, DigestFunction.BLAKE3),
        placer=OutputPlacer(tmp_path, store),
        last_build=LastBuild(None),
    )
    result = driver.build([upper], [target("//p:t", upper.output("out"))])
    assert result.success
    assert (tmp_path / "out/p/t/out0").read_text() == "HELLO"
