"""Whole builds: a real store, real files, shell scripts as actions."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.engine.action import (
    Action,
    CachePolicy,
    DiscoveredArtifacts,
    SourceArtifact,
)
from mlcbuild.engine.build_events import (
    ActionStatus,
    BuildFinished,
    BuildStarted,
    TargetFinished,
    TargetSkipped,
)
from tests.engine.small_workspace import NoStages, NoToolchains, OneAPart, Workspace, chain, shell, target


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


def test_an_empty_output_directory_is_a_result(workspace: Workspace) -> None:
    empty = shell("empty", "true", outputs=("dir/",))
    count = shell("count", "ls -A d 2>/dev/null | wc -l > out", [("d/", empty.output("dir/"))])
    assert workspace.build([empty, count], target("//p:t", count.output("out"))).success
    assert workspace.text("out/p/t/out0").strip() == "0"
    assert workspace.build([empty, count], target("//p:t", count.output("out"))).success
    assert set(workspace.statuses().values()) == {ActionStatus.UP_TO_DATE}


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
