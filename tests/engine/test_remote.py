"""A build with a remote cache: it takes what the cache has, sends what it lacks, and survives its failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.merkle import TreeFile, tree_of
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.store import BlobMissingError, LocalBlobStore
from mlcbuild.engine.action import Action, CachePolicy, SourceArtifact
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, Notice
from mlcbuild.errors import CacheError
from tests.engine.small_workspace import Workspace, shell, target


class SharedFolder:
    """A RemoteCache in a folder. `is_down`: everything fails."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._there = DiskStore(root, DigestFunction.BLAKE3)
        self.bytes_downloaded = 0
        self.bytes_uploaded = 0
        self.is_down = False
        self.sends_what_was_found = False
        self.may_be_overtaken = False
        self.seconds = 0.0  # of a lookup
        self.ended: list[str] = []
        self.asked_in_vain = 0

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
        self.asked_in_vain += len(missing)
        return tuple(missing)

    def send(self, key: Digest, result: ActionResult, outputs: Sequence[Digest], store: LocalBlobStore) -> None:
        self._check()
        for digest in (*outputs, *(directory.tree_digest for directory in result.output_directories)):
            self._there.put_bytes(store.read(digest))
            self.bytes_uploaded += digest.size_bytes
        self._there.put(key, result)

    def forget(self, key: str) -> None:
        """Lose the result of a key, by its hash."""
        (found,) = [path for path in self.root.rglob("*") if path.is_file() and key in path.name and "ac" in path.parts]
        found.unlink()

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


def varied(outputs: tuple[str, ...] = ("out",)) -> list[Action]:
    """An action whose bytes differ in each run, and two that need them."""
    place = "d/x" if "d/" in outputs else "out"
    make = shell(
        "make",
        f"od -An -N16 -tx1 /dev/urandom > {place}",
        [("in", SourceArtifact(path="a.txt"))],
        outputs,
        cache=CachePolicy.NON_REPRODUCIBLE,
    )
    many = outputs[0].endswith("/")
    use = shell(
        "use", "cat in/x > out" if many else "cat in > out", [("in/" if many else "in", make.output(outputs[0]))]
    )
    return [make, use, shell("last", "cat in > out", [("in", use.output("out"))])]


@pytest.mark.parametrize("output", ["out", "d/"])
def test_what_needs_bytes_that_differ_has_the_same_key_on_each_machine(
    tmp_path: Path, remote: SharedFolder, output: str
) -> None:
    graph = varied((output,))
    wanted = target("//p:t", graph[0].output(output), graph[2].output("out"))
    made = "out/p/t/out0/x" if output == "d/" else "out/p/t/out0"

    first = machine(tmp_path, "first", remote)
    assert first.build(graph, wanted).success
    second = machine(tmp_path, "second", remote)
    assert second.build(graph, wanted).success
    assert set(second.statuses().values()) == {ActionStatus.REMOTE_HIT}, "such results are shared"
    assert second.text(made) == first.text(made)

    alone = Workspace(tmp_path / "alone")
    alone.write("a.txt", "hello")
    assert alone.build(graph, wanted).success
    assert alone.text(made) != first.text(made)
    keys = [{e.identifier: e.key for e in each.events if isinstance(e, ActionFinished)} for each in (first, alone)]
    assert keys[0]["use"] == keys[1]["use"]
    assert keys[0]["last"] != keys[1]["last"], "use is a function of bytes, and so is what needs it"

    # Where the result has gone, it is made again, in other bytes, and what needs it is not.
    remote.forget(keys[0]["make"])
    third = machine(tmp_path, "third", remote)
    assert third.build(graph, wanted).success
    assert third.executed() == {"make"}
    assert third.text(made) != first.text(made)


@pytest.mark.parametrize(
    ("cache", "after"), [(CachePolicy.ALL, {"make"}), (CachePolicy.NON_REPRODUCIBLE, {"make", "use"})]
)
def test_equal_bytes_stop_a_rebuild_only_where_they_mean_something(
    tmp_path: Path, cache: CachePolicy, after: set[str]
) -> None:
    make = shell("make", "echo same > out", [("in", SourceArtifact(path="a.txt"))], cache=cache)
    use = shell("use", "cat in > out", [("in", make.output("out"))])
    workspace = Workspace(tmp_path)
    workspace.write("a.txt", "hello")
    workspace.build([make, use], target("//p:t", use.output("out")))
    workspace.write("a.txt", "hello, you")
    assert workspace.build([make, use], target("//p:t", use.output("out"))).success
    assert workspace.executed() == after


UNPACKED = "unpacked " * 1000


def remade() -> list[Action]:
    """Something small, what is unpacked of it, and what needs that."""
    small = shell("small", "cp in out", [("in", SourceArtifact(path="a.txt"))])
    unpack = shell(
        "unpack",
        f"cat in > list; (cat in; printf '{UNPACKED}') > d/x",
        [("in", small.output("out"))],
        ("d/", "list"),
        cache=CachePolicy.REMADE,
    )
    return [small, unpack, use_of("use", unpack), use_of("again", unpack, more="; wc -c < d/x")]


def use_of(name: str, unpack: Action, *, more: str = "") -> Action:
    return shell(name, f"(head -c 5 d/x{more}) > out", [("d/", unpack.output("d/"))])


def test_digests_of_what_is_remade_are_shared_and_its_bytes_are_not(tmp_path: Path, remote: SharedFolder) -> None:
    graph = remade()
    wanted = target("//p:t", graph[2].output("out"), graph[1].output("list"))
    first = machine(tmp_path, "first", remote)
    assert first.build(graph, wanted).success
    assert remote.bytes_uploaded < len(UNPACKED), "a tree, a list and small files"

    second = machine(tmp_path, "second", remote)
    result = second.build(graph, wanted)
    assert set(second.statuses().values()) == {ActionStatus.REMOTE_HIT}
    assert (second.text("out/p/t/out0"), second.text("out/p/t/out1")) == ("hello", "hello")
    assert result.bytes_downloaded < len(UNPACKED)
    second.build(graph, wanted)
    assert set(second.statuses().values()) == {ActionStatus.UP_TO_DATE}, "also without these bytes"
    assert second.store.missing([second.store.function.of_bytes(f"hello{UNPACKED}".encode())])

    # What runs there needs the bytes, and so they are made there, once for all.
    more = use_of("more", graph[1], more="; echo more")
    wanted = target("//p:u", graph[3].output("out"), more.output("out"))
    assert second.build([*graph, more], wanted).success
    assert second.executed() == {"again", "more", "unpack"}
    causes = [event.cause for event in second.events if isinstance(event, ActionFinished) and event.cause]
    assert sorted(cause.value for cause in causes) == ["first build", "first build", "remade"]
    assert second.text("out/p/u/out0") == f"hello{5 + len(UNPACKED)}\n"
    assert second.build([*graph, more], target("//p:t", graph[2].output("out"))).success
    assert second.executed() == set()


def test_a_target_of_what_is_remade_is_made_where_it_is_wanted(tmp_path: Path, remote: SharedFolder) -> None:
    graph = remade()
    machine(tmp_path, "first", remote).build(graph, target("//p:t", graph[1].output("d/")))
    second = machine(tmp_path, "second", remote)
    assert second.build(graph, target("//p:t", graph[1].output("d/"))).success
    assert second.text("out/p/t/out0/x") == f"hello{UNPACKED}"
    assert second.executed() == {"unpack"}
    assert remote.asked_in_vain == 0


def test_what_is_found_on_the_disk_is_sent_in_its_shared_form(tmp_path: Path, remote: SharedFolder) -> None:
    graph = remade()
    wanted = target("//p:t", graph[2].output("out"))
    first = machine(tmp_path, "first", remote)
    first.remote = None
    first.driver = first.new_driver()
    first.build(graph, wanted)
    first.remote, remote.sends_what_was_found = remote, True
    first.driver = first.new_driver()
    first.build(graph, wanted)
    assert 0 < remote.bytes_uploaded < len(UNPACKED)
    second = machine(tmp_path, "second", remote)
    second.build(graph, wanted)
    assert set(second.statuses().values()) == {ActionStatus.REMOTE_HIT}


def test_without_the_list_of_its_files_a_result_that_is_remade_is_none(tmp_path: Path, remote: SharedFolder) -> None:
    graph = remade()
    wanted = target("//p:t", graph[2].output("out"))
    first = machine(tmp_path, "first", remote)
    first.build(graph, wanted)
    function = first.store.function
    listed = tree_of([TreeFile("x", function.of_bytes(f"hello{UNPACKED}".encode()))], function)
    remote.lose(listed.encode())
    second = machine(tmp_path, "second", remote)
    assert second.build(graph, wanted).success
    assert second.executed() == {"unpack"}


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
