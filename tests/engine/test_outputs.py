"""A target's directory holds its outputs and no others, whatever happened to it since."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NoReturn

import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.engine import outputs
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.outputs import OutputPlacer, PlacedFiles
from mlcbuild.errors import LocalEnvironmentError

TOP = "mlcbuild-out/default/models/tiny"


class World:
    """A workspace with a store; `placer` is a new one each time, as in each build."""

    def __init__(self, root: Path) -> None:
        self.workspace = root / "workspace"
        self.workspace.mkdir()
        self.store = DiskStore(root / "store", DigestFunction.BLAKE3)
        self.state = self.workspace / ".mlcbuild" / "outputs"
        self.top = self.workspace / TOP

    def entry(self, path: str, data: bytes, executable: bool = False) -> FileEntry:
        return FileEntry(path=path, digest=self.store.put_bytes(data), is_executable=executable)

    def placer(self) -> OutputPlacer:
        return OutputPlacer(self.workspace, self.store, self.state)

    def build(self, *files: FileEntry, directory: str = TOP) -> PlacedFiles:
        placer = self.placer()
        placement = placer.place(directory, files)
        placer.save()
        return placement

    def content(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.top)): path.read_bytes() for path in self.top.rglob("*") if path.is_file()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_outputs_are_placed_read_only_with_their_executable_bit(world: World) -> None:
    placement = world.build(
        world.entry("lib.so", b"code", executable=True), world.entry("params/é 0.bin", b"1"), world.entry("empty", b"")
    )
    assert placement == PlacedFiles(written=("empty", "lib.so", "params/é 0.bin"))
    assert world.content() == {"lib.so": b"code", "params/é 0.bin": b"1", "empty": b""}
    assert stat.S_IMODE((world.top / "lib.so").stat().st_mode) == 0o555
    assert stat.S_IMODE((world.top / "empty").stat().st_mode) == 0o444


def test_a_second_build_writes_nothing_and_reads_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    files = (world.entry("a", b"1"), world.entry("b/c", b"2"))
    world.build(*files)

    def refuse(*_: object) -> None:
        raise AssertionError("an output was read")

    monkeypatch.setattr(DigestFunction, "of_file", refuse)
    assert world.placer().is_current(TOP, files)
    assert world.build(*files) == PlacedFiles(kept=("a", "b/c"))


def test_whether_outputs_are_current_follows_what_is_wanted_and_what_is_there(world: World) -> None:
    a, b = world.entry("a", b"1"), world.entry("b", b"2")
    assert world.placer().is_current(TOP, ())
    assert not world.placer().is_current(TOP, (a,))
    world.build(a, b)
    assert world.placer().is_current(TOP, (b, a))
    assert not world.placer().is_current(TOP, (a,))
    assert not world.placer().is_current(TOP, (a, b, world.entry("c", b"3")))
    assert not world.placer().is_current(TOP, (a, world.entry("b", b"3")))
    assert not world.placer().is_current(TOP, (a, FileEntry(path="b", digest=b.digest, is_executable=True)))
    (world.top / "a").unlink()
    assert not world.placer().is_current(TOP, (a, b))


def test_a_changed_output_alone_is_written(world: World) -> None:
    world.build(world.entry("a", b"1"), world.entry("b", b"2"))
    placement = world.build(world.entry("a", b"1"), world.entry("b", b"3"))
    assert placement == PlacedFiles(written=("b",), kept=("a",))
    assert world.content() == {"a": b"1", "b": b"3"}


def test_an_output_that_only_becomes_executable_is_replaced(world: World) -> None:
    world.build(world.entry("a", b"1"))
    world.build(world.entry("a", b"1", executable=True))
    assert os.access(world.top / "a", os.X_OK)


def test_stale_outputs_go_and_their_empty_directories_too(world: World) -> None:
    world.build(world.entry("params/deep/0.bin", b"0"), world.entry("params/1.bin", b"1"), world.entry("a", b"2"))
    assert world.build(world.entry("a", b"2")).removed == ("params/1.bin", "params/deep/0.bin")
    assert [path.name for path in world.top.iterdir()] == ["a"]


def test_files_of_the_user_stay(world: World) -> None:
    world.build(world.entry("params/0.bin", b"0"))
    (world.top / "params/notes.txt").write_text("mine")
    world.build(world.entry("a", b"2"))
    assert world.content() == {"a": b"2", "params/notes.txt": b"mine"}


@pytest.mark.parametrize("edit", ["same size", "same tick", "longer", "deleted", "mode", "link", "directory"])
def test_edited_outputs_are_restored(world: World, edit: str) -> None:
    entry = world.entry("a", b"right")
    world.build(entry)
    path = world.top / "a"
    if edit == "mode":
        path.chmod(0o666)
    else:
        path.unlink()
    if edit == "same size":
        path.write_bytes(b"wrong")
    elif edit == "same tick":
        # As if the file had been written in the very tick of the clock in which it was placed.
        path.write_bytes(b"wrong")
        path.chmod(0o444)
    elif edit == "longer":
        path.write_bytes(b"right and wrong")
    elif edit == "link":
        (world.workspace / "other").write_bytes(b"right")
        path.symlink_to(world.workspace / "other")
    elif edit == "directory":
        (path / "inside").mkdir(parents=True)
    assert not world.placer().is_current(TOP, (entry,))
    assert world.build(entry).written == ("a",)
    assert world.content() == {"a": b"right"}
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert world.store.read(entry.digest) == b"right"


def test_an_edit_in_place_shows_even_in_the_tick_of_the_placing(world: World) -> None:
    entry = world.entry("a", b"right")
    world.build(entry)
    (world.top / "a").chmod(0o644)
    (world.top / "a").write_bytes(b"wrong")
    (world.top / "a").chmod(0o444)
    assert world.build(entry).written == ("a",)
    assert world.content() == {"a": b"right"}


def test_a_touched_output_with_the_right_bytes_is_kept(world: World) -> None:
    entry = world.entry("a", b"right")
    world.build(entry)
    os.utime(world.top / "a")
    assert world.build(entry) == PlacedFiles(kept=("a",))


def test_files_and_directories_change_places(world: World) -> None:
    world.build(world.entry("a", b"1"), world.entry("b/c", b"2"))
    world.build(world.entry("a/b", b"3"), world.entry("b", b"4"))
    assert world.content() == {"a/b": b"3", "b": b"4"}
    world.build(world.entry("a", b"1"), world.entry("b/c", b"2"))
    assert world.content() == {"a": b"1", "b/c": b"2"}


def test_a_link_in_the_way_is_replaced_and_what_it_leads_to_left_alone(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "0.bin").write_bytes(b"precious")
    world.build(world.entry("params/0.bin", b"0"), world.entry("params/1.bin", b"1"))
    for path in (world.top / "params").iterdir():
        path.unlink()
    (world.top / "params").rmdir()
    (world.top / "params").symlink_to(outside)
    world.build(world.entry("params/1.bin", b"1"))
    assert sorted(path.name for path in outside.iterdir()) == ["0.bin"]
    assert world.content() == {"params/1.bin": b"1"}


def test_a_missing_blob_is_named_and_nothing_changes(world: World) -> None:
    world.build(world.entry("a", b"1"), world.entry("b", b"2"))
    gone = world.entry("b", b"gone")
    world.store.path_of(gone.digest).unlink()
    assert world.build(gone, world.entry("c", b"3")) == PlacedFiles(missing=(gone.digest,))
    assert world.content() == {"a": b"1", "b": b"2"}
    assert sorted(path.name for path in world.top.iterdir()) == ["a", "b"]


def test_a_damaged_blob_is_as_good_as_missing(world: World) -> None:
    entry = world.entry("b", b"hello")
    path = world.store.path_of(entry.digest)
    path.chmod(0o644)
    path.write_bytes(b"hellp")
    assert world.build(world.entry("a", b"1"), entry) == PlacedFiles(missing=(entry.digest,))
    assert world.content() == {}


def test_an_output_that_is_in_place_needs_no_blob(world: World) -> None:
    entry = world.entry("a", b"1")
    world.build(entry)
    world.store.path_of(entry.digest).unlink()
    assert world.build(entry) == PlacedFiles(kept=("a",))


# Lost and damaged state


@pytest.mark.parametrize("content", [None, b"", b"garbage"])
def test_without_its_state_it_looks_at_the_files(world: World, content: bytes | None) -> None:
    world.build(world.entry("a", b"1"), world.entry("old", b"2"))
    if content is None:
        world.state.unlink()
    else:
        world.state.write_bytes(content)
    (world.top / "mine.txt").write_text("mine")
    assert world.build(world.entry("a", b"1")) == PlacedFiles(kept=("a",), removed=("old",))
    assert world.content() == {"a": b"1", "mine.txt": b"mine"}


def test_without_its_state_and_a_blob_the_second_try_still_finds_what_is_stale(world: World) -> None:
    world.build(world.entry("a", b"1"), world.entry("old", b"2"))
    world.state.unlink()
    gone = world.entry("gone", b"3")
    world.store.path_of(gone.digest).unlink()
    placer = world.placer()
    assert placer.place(TOP, (world.entry("a", b"1"), gone)).missing == (gone.digest,)
    assert placer.place(TOP, (world.entry("a", b"1"), world.entry("gone", b"3"))).removed == ("old",)


def test_without_its_state_other_targets_below_are_left_alone(world: World) -> None:
    inner = f"{TOP}/inner"
    world.build(world.entry("x", b"1"), directory=inner)
    placer = world.placer()
    assert placer.place(TOP, (world.entry("a", b"1"),)).removed == ()
    assert placer.is_current(inner, (world.entry("x", b"1"),))


def test_placing_a_target_looks_at_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unwalked(dict[str, set[str]]):
        def __iter__(self) -> NoReturn:
            raise AssertionError("what a target costs would grow with the number of targets")

    for name in ("one", "two"):
        world.build(world.entry("x", b"1"), directory=f"mlcbuild-out/default/{name}")
    placer = world.placer()
    monkeypatch.setattr(placer, "_placed", Unwalked(placer._placed))
    assert placer.place(TOP, (world.entry("a", b"1"),)).written == ("a",)


def test_a_build_killed_between_two_targets_leaves_nothing_stale(world: World) -> None:
    world.build(world.entry("a", b"1"))
    killed = world.placer()
    killed.place(TOP, (world.entry("a", b"1"), world.entry("half", b"2")))
    assert world.build(world.entry("a", b"1")).removed == ("half",)
    assert world.content() == {"a": b"1"}


def test_leftovers_of_a_killed_placing_are_removed(world: World) -> None:
    world.top.mkdir(parents=True)
    (world.top / ".mlcbuild-99-abc").write_bytes(b"half")
    world.build(world.entry("a", b"1"))
    assert world.content() == {"a": b"1"}


# Links


def test_large_outputs_are_linked_where_blocks_cannot_be_shared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "HARD_LINK_FROM_BYTES", 4)
    small, large, tool = (
        world.entry("s", b"123"),
        world.entry("l", b"1234"),
        world.entry("t", b"12345", executable=True),
    )
    world.build(small, large, tool)

    def inode(path: Path) -> int:
        return path.stat().st_ino

    assert inode(world.top / "l") == inode(world.store.path_of(large.digest))
    assert inode(world.top / "s") != inode(world.store.path_of(small.digest))
    assert inode(world.top / "t") != inode(world.store.path_of(tool.digest))
    assert world.build(small, large, tool).written == ()


def test_a_linked_output_that_is_edited_cannot_poison_the_store(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "HARD_LINK_FROM_BYTES", 4)
    entry = world.entry("a", b"12345")
    world.build(entry)
    (world.top / "a").chmod(0o644)
    (world.top / "a").write_bytes(b"1234X")
    assert world.build(entry).missing == (entry.digest,)
    world.entry("a", b"12345")
    assert world.build(entry).written == ("a",)
    assert world.content() == {"a": b"12345"}


def test_a_link_onto_itself_leaves_no_second_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "HARD_LINK_FROM_BYTES", 4)
    entry = world.entry("a", b"12345")
    world.build(entry)
    (world.top / "a").chmod(0o644)
    world.build(entry)
    assert [path.name for path in world.top.iterdir()] == ["a"]


# Faults


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", "", "a//b", "."])
def test_paths_out_of_the_directory_are_refused(world: World, path: str) -> None:
    digest = world.store.put_bytes(b"1")
    with pytest.raises(ValueError, match="not a path below"):
        world.placer().place(TOP, (FileEntry(path=path, digest=digest),))


def test_a_full_disk_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.build(world.entry("a", b"1"))
    entries = (world.entry("b", b"2"), world.entry("c", b"3"))
    made: list[str] = []

    def full(source: int, destination: str, *, mode: int = 0) -> bool:
        made.append(destination)
        Path(destination).write_bytes(b"")
        if len(made) == 2:
            raise OSError(28, "No space left on device")
        return False

    monkeypatch.setattr(outputs, "clone_or_copy", full)
    with pytest.raises(LocalEnvironmentError, match="no space left while placing outputs"):
        world.build(*entries)
    assert world.content() == {"a": b"1"}


def test_a_directory_that_cannot_be_made_is_told(world: World) -> None:
    (world.workspace / "mlcbuild-out").write_bytes(b"a file")
    with pytest.raises(LocalEnvironmentError, match="mlcbuild-out is a file where the directory of outputs has to be"):
        world.build(world.entry("a", b"1"))
