"""The collector finds the results that a build would find, also those of discovered actions. Nothing runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.engine.action import Action, CachePolicy, DiscoveredArtifacts, SourceArtifact
from mlcbuild.engine.result_collector import CollectedResults, MissingReason, ResultCollector
from mlcbuild.engine.scheduler_events import RequestedTarget
from tests.engine.small_workspace import NoStages, NoToolchains, OneAPart, Workspace, shell, target
from tests.remote.cache_world import machine
from tests.remote.memory_transport import MemoryTransport


def graph() -> tuple[list[Action], RequestedTarget]:
    """An action that discovers two actions a part, whose outputs the last one joins: 8 in all for three parts."""
    split = shell(
        "split",
        "for p in $(cat in); do echo $p > parts/$p; echo parts/$p >> manifest; done",
        [("in", SourceArtifact(path="parts"))],
        ("manifest", "parts/"),
        discoverer=OneAPart(),
    )
    join = shell("join", "cat d/* > out", [("d/", DiscoveredArtifacts(action="split", group="doubled"))])
    return [split, join], target("//p:t", join.output("out"))


@pytest.fixture
def server() -> MemoryTransport:
    return MemoryTransport()


def built(folder: Path, server: MemoryTransport) -> Workspace:
    workspace = Workspace(folder, remote=machine(folder / "unused", server).cache)
    workspace.write("parts", "x y z")
    actions, wanted = graph()
    assert workspace.build(actions, wanted).success
    return workspace


def collected(
    workspace: Workspace, server: MemoryTransport | None, actions: list[Action], wanted: RequestedTarget
) -> CollectedResults:
    root = workspace.root / "workspace"
    remote = None if server is None else machine(workspace.root / "unused", server).cache
    return ResultCollector(
        workspace=root,
        store=workspace.store,
        toolchains=NoToolchains(),
        implementations=NoStages(),
        digests=FileDigests(root, DigestFunction.BLAKE3, root / "collected"),
        remote=remote,
        threads=4,
    ).collect(actions, [wanted])


def test_all_that_a_build_would_look_up_comes_whole(tmp_path: Path, server: MemoryTransport) -> None:
    built(tmp_path / "first", server)
    other = Workspace(tmp_path / "second")
    other.write("parts", "x y z")
    actions, wanted = graph()
    found = collected(other, server, actions, wanted)
    assert found.is_complete
    assert (len(found.fetched), found.in_store, found.blocked) == (8, (), 0)
    assert other.build(actions, wanted).success, "without a remote"
    assert other.executed() == set()
    found = collected(other, None, actions, wanted)
    assert (found.fetched, len(found.in_store)) == ((), 8)


def test_what_is_here_in_part_is_completed(tmp_path: Path, server: MemoryTransport) -> None:
    first = built(tmp_path / "first", server)
    actions, wanted = graph()
    for blob in (first.root / "store/v1/blake3/cas").glob("*/*"):
        if blob.read_bytes() == b"x\nx\ny\ny\nz\nz\n":
            blob.unlink()
    found = collected(first, server, actions, wanted)
    assert (len(found.fetched), len(found.in_store)) == (1, 7)


def test_an_action_without_a_result_ends_its_branch_alone(tmp_path: Path, server: MemoryTransport) -> None:
    built(tmp_path / "first", server)
    other = Workspace(tmp_path / "second")
    other.write("parts", "x w z")
    actions, wanted = graph()
    found = collected(other, server, actions, wanted)
    # The list of parts is another one, so it is not known what it leads to.
    assert [(each.identifier, each.reason) for each in found.missing] == [("split", MissingReason.ABSENT)]
    assert found.blocked == 1
    measure = shell("measure", "date > out", cache=CachePolicy.NONE)
    mine = shell("mine", "hostname > out", cache=CachePolicy.LOCAL)
    both = shell("both", "cat a b > out", [("a", measure.output("out")), ("b", mine.output("out"))])
    other = Workspace(tmp_path / "third")
    found = collected(other, server, [measure, mine, both], target("//p:u", both.output("out")))
    assert {each.identifier: each.reason for each in found.missing} == {
        "measure": MissingReason.NEVER_KEPT,
        "mine": MissingReason.NEVER_SHARED,
    }


def test_a_source_that_is_not_there_is_told(tmp_path: Path, server: MemoryTransport) -> None:
    actions, wanted = graph()
    (missing,) = collected(Workspace(tmp_path / "one"), server, actions, wanted).missing
    assert missing.reason is MissingReason.NO_KEY
    assert "parts" in missing.message
