"""A build with a remote cache: it takes what the cache has, sends what it lacks, and survives its failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.store import BlobMissingError, LocalBlobStore
from mlcbuild.engine.action import Action, CachePolicy, SourceArtifact
from mlcbuild.engine.build_events import ActionStatus, Notice
from mlcbuild.errors import CacheError
from tests.engine.small_workspace import Workspace, shell, target


class SharedFolder:
    """A RemoteCache in a folder. `is_down`: everything fails."""

    def __init__(self, root: Path) -> None:
        self._there = DiskStore(root, DigestFunction.BLAKE3)
        self.bytes_downloaded = 0
        self.bytes_uploaded = 0
        self.is_down = False
        self.sends_what_was_found = False
        self.may_be_overtaken = False
        self.seconds = 0.0  # of a lookup
        self.ended: list[str] = []

    def start(self, tell: Callable[[str], object]) -> None:
        self.tell = tell

    def finish(self) -> None:
        self.tell(f"sent {self.bytes_uploaded} bytes")
        self.ended.append("finished")

    def abandon(self) -> None:
        self.ended.append("abandoned")

    def find(self, key: Digest, store: LocalBlobStore) -> ActionResult | None:
        self._check()
        time.sleep(self.seconds)
        result = self._there.get(key)
        if result is not None:
            self.fetch([directory.tree_digest for directory in result.output_directories], store)
        return result

    def fetch(self, digests: Sequence[Digest], store: LocalBlobStore) -> tuple[Digest, ...]:
        self._check()
        missing = []
        for digest in digests:
            try:
                store.put_bytes(self._there.read(digest))
                self.bytes_downloaded += digest.size_bytes
            except BlobMissingError:
                missing.append(digest)
        return tuple(missing)

    def send(self, key: Digest, result: ActionResult, outputs: Sequence[Digest], store: LocalBlobStore) -> None:
        self._check()
        for digest in (*outputs, *(directory.tree_digest for directory in result.output_directories)):
            self._there.put_bytes(store.read(digest))
            self.bytes_uploaded += digest.size_bytes
        self._there.put(key, result)

    def lose(self, content: bytes) -> None:
        self._there.path_of(self._there.function.of_bytes(content)).unlink()

    def _check(self) -> None:
        if self.is_down:
            raise CacheError("no connection")


@pytest.fixture
def remote(tmp_path: Path) -> SharedFolder:
    return SharedFolder(tmp_path / "remote")


def machine(tmp_path: Path, name: str, remote: SharedFolder) -> Workspace:
    workspace = Workspace(tmp_path / name, remote=remote)
    workspace.write("a.txt", "hello")
    return workspace


def actions() -> list[Action]:
    make = shell("make", "cp in d/x; echo made > d/y", [("in", SourceArtifact(path="a.txt"))], ("d/",))
    use = shell("use", "cat d/x d/y > out", [("d/", make.output("d/"))])
    return [make, use]


def test_what_one_machine_has_built_another_takes(tmp_path: Path, remote: SharedFolder) -> None:
    graph = actions()
    first = machine(tmp_path, "first", remote)
    result = first.build(graph, target("//p:t", graph[1].output("out")))
    assert result.bytes_uploaded > 0
    second = machine(tmp_path, "second", remote)
    result = second.build(graph, target("//p:t", graph[1].output("out")))
    assert result.success
    assert second.text("out/p/t/out0") == "hellomade\n"
    assert set(second.statuses().values()) == {ActionStatus.REMOTE_HIT}
    assert result.bytes_downloaded > 0
    second.build(graph, target("//p:t", graph[1].output("out")))
    assert set(second.statuses().values()) == {ActionStatus.UP_TO_DATE}


def test_inputs_of_what_must_run_are_fetched(tmp_path: Path, remote: SharedFolder) -> None:
    graph = actions()
    machine(tmp_path, "first", remote).build(graph, target("//p:t", graph[1].output("out")))
    second = machine(tmp_path, "second", remote)
    other = shell("other", "cat d/* | tr a-z A-Z > out", [("d/", graph[0].output("d/"))])
    assert second.build([*graph, other], target("//p:o", other.output("out"))).success
    assert second.text("out/p/o/out0") == "HELLOMADE\n"
    assert second.executed() == {"other"}


def test_a_blob_that_the_remote_has_lost_is_made_again(tmp_path: Path, remote: SharedFolder) -> None:
    graph = actions()
    machine(tmp_path, "first", remote).build(graph, target("//p:t", graph[1].output("out")))
    remote.lose(b"hellomade\n")
    second = machine(tmp_path, "second", remote)
    assert second.build(graph, target("//p:t", graph[1].output("out"))).success
    assert second.text("out/p/t/out0") == "hellomade\n"
    assert second.executed() == {"use"}


def test_a_remote_that_is_down_fails_nothing_and_is_told_once_and_counted(tmp_path: Path, remote: SharedFolder) -> None:
    remote.is_down = True
    graph = actions()
    workspace = machine(tmp_path, "first", remote)
    assert workspace.build(graph, target("//p:t", graph[1].output("out"))).success
    notices = [event.message for event in workspace.events if isinstance(event, Notice)]
    assert len(notices) == 3
    assert "no connection" in notices[0]
    assert notices[1] == "sent 0 bytes"  # told by the remote itself, from a thread of its own
    assert "4 times" in notices[2]  # two lookups, two results
    assert remote.ended == ["finished"]


def test_what_is_true_of_one_machine_is_neither_asked_for_nor_sent(tmp_path: Path, remote: SharedFolder) -> None:
    local = shell("local", "echo here > out", cache=CachePolicy.LOCAL)
    for name in ("first", "second"):
        workspace = machine(tmp_path, name, remote)
        workspace.build([local], target("//p:t", local.output("out")))
        assert workspace.executed() == {"local"}
    assert remote.bytes_uploaded == 0


def test_a_remote_that_wants_it_is_sent_what_was_found_on_the_disk(tmp_path: Path, remote: SharedFolder) -> None:
    graph = actions()
    first = machine(tmp_path, "first", remote)
    first.remote = None
    first.driver = first.new_driver()
    first.build(graph, target("//p:t", graph[1].output("out")))
    first.remote = remote
    for wants_it in (False, True):
        remote.sends_what_was_found = wants_it
        first.driver = first.new_driver()
        first.build(graph, target("//p:t", graph[1].output("out")))
        assert (remote.bytes_uploaded > 0) == wants_it
    second = machine(tmp_path, "second", remote)
    second.build(graph, target("//p:t", graph[1].output("out")))
    assert set(second.statuses().values()) == {ActionStatus.REMOTE_HIT}


def test_an_interruption_ends_the_wait_for_uploads(tmp_path: Path) -> None:
    class Slow(SharedFolder):
        """Its uploads never end by themselves."""

        def start(self, tell: Callable[[str], object]) -> None:
            super().start(tell)
            self.let_be = threading.Event()

        def finish(self) -> None:
            workspace.driver.interrupt()
            assert self.let_be.wait(30)
            self.ended.append("finished")

        def abandon(self) -> None:
            self.let_be.set()

    slow = Slow(tmp_path / "remote")
    workspace = machine(tmp_path, "first", slow)
    graph = actions()
    assert workspace.build(graph, target("//p:t", graph[1].output("out"))).success
    assert slow.ended == ["finished"]


@pytest.mark.parametrize("may_be_overtaken", [True, False])
def test_an_action_runs_while_its_lookup_takes_longer_where_that_is_allowed(
    tmp_path: Path, remote: SharedFolder, may_be_overtaken: bool
) -> None:
    graph = actions()
    machine(tmp_path, "first", remote).build(graph, target("//p:t", graph[0].output("d/")))
    second = machine(tmp_path, "second", remote)
    remote.seconds = 5.0
    remote.may_be_overtaken = may_be_overtaken
    assert second.build(graph, target("//p:t", graph[0].output("d/"))).success
    assert set(second.statuses().values()) == {
        ActionStatus.EXECUTED_LOCAL if may_be_overtaken else ActionStatus.REMOTE_HIT
    }
