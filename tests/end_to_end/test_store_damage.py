"""What happens to the cache, to outputs and to local state between builds costs time, and never a wrong byte."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.world import World, blob_of, command

CHAIN = (
    command("a", "cat $2 $2 > $1", inputs=["in.txt"], outputs=["a"]),
    command("b", "cat $2 $2 > $1; echo b", inputs=[":a"], outputs=["b"]),
    command("c", "cat $2 > ${1}one; cat $2 $2 > ${1}two", inputs=[":b"], outputs=["c/"]),
)
A, B, C = b"in\n" * 2, b"in\n" * 4, b"in\n" * 8

Damage = Callable[[Path], object]


def delete(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.chmod(0o644)
    os.truncate(path, path.stat().st_size // 2)
    path.chmod(0o444)


def empty(path: Path) -> None:
    path.chmod(0o644)
    os.truncate(path, 0)
    path.chmod(0o444)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)


def flip_and_hide(path: Path) -> None:
    """As bit rot does: no stat tells."""
    status = path.stat()
    flip(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def become_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.fixture
def built(world: World) -> World:
    world.write("in.txt", "in\n")
    world.commands(*CHAIN)
    assert world.build().actions == {"executed_local": 3}
    return world


def right(world: World) -> None:
    assert world.output("a/a").read_bytes() == A
    assert world.output("b/b").read_bytes() == B
    assert world.output("c/c/one").read_bytes() == B
    assert world.output("c/c/two").read_bytes() == C


@pytest.mark.parametrize(
    ("content", "damage"), [(B, delete), (B, cut), (B, empty), (B, flip), (B, flip_and_hide), (A, flip), (C, flip)]
)
def test_a_damaged_blob_is_made_again(built: World, content: bytes, damage: Damage) -> None:
    damage(blob_of(built, content))
    assert built.mlcbuild("clean").code == 0
    done = built.build()
    assert done.code == 0
    assert done.actions.get("executed_local", 0) >= 1
    assert done.actions["disk_hits"] + done.actions["executed_local"] == 3
    right(built)
    assert built.verify() == 3
    assert built.build().actions == {"up_to_date": 3}


def test_a_store_without_blobs_or_results_is_filled_again(built: World) -> None:
    for folder in ("cas", "ac"):
        shutil.rmtree(built.store / folder)
        built.write("in.txt", "in\n")
        built.mlcbuild("clean")
        assert built.build().code == 0
        right(built)
        assert built.verify() == 3


def test_without_a_clean_too(built: World) -> None:
    shutil.rmtree(built.cache)
    (built.root / "mlcbuild-out/default/c/c/one").unlink()
    assert built.build().code == 0
    right(built)


@pytest.mark.parametrize("damage", [delete, cut, empty, flip])
def test_a_damaged_result_is_a_miss(built: World, damage: Damage) -> None:
    for path in list((built.store / "ac").glob("*/*")):
        damage(path)
    built.mlcbuild("clean")
    assert built.build().actions == {"executed_local": 3}
    right(built)
    assert built.verify() == 3


@pytest.mark.parametrize("damage", [delete, cut, empty, flip])
def test_damaged_outputs_are_restored_and_nothing_runs(built: World, damage: Damage) -> None:
    for path in ("a/a", "c/c/two"):
        damage(built.output(path))
    assert built.build().actions == {"up_to_date": 3}
    right(built)
    assert built.verify() == 3


def test_outputs_in_whose_way_something_lies_are_restored(built: World) -> None:
    become_a_directory(built.output("a/a"))
    built.output("b/b").unlink()
    built.output("b/b").symlink_to(built.root / "in.txt")
    done = built.build()
    assert (done.code, done.actions) == (0, {"up_to_date": 3}), done.err
    right(built)
    assert (built.root / "in.txt").read_bytes() == b"in\n"


def test_a_target_may_take_the_place_of_an_output_of_another(world: World) -> None:
    world.write("a/BUILD.toml", command("b", "echo file > $1", outputs=["c"]).replace('":sh"', '"//:sh"'))
    world.commands()
    assert world.build("//...").code == 0
    assert world.output("a/b/c").is_file()
    (world.root / "a/BUILD.toml").unlink()
    world.write("a/b/BUILD.toml", command("c", "echo file > $1", outputs=["d"]).replace('":sh"', '"//:sh"'))
    assert world.build("//...").code == 0
    assert world.output("a/b/c/d").read_text() == "file\n"


def test_a_file_of_the_user_in_the_way_of_outputs_is_not_removed(built: World) -> None:
    shutil.rmtree(built.output("c"))
    built.output("c").write_text("mine")
    done = built.build()
    assert (done.code, done.actions) == (36, {"up_to_date": 3})
    assert done.err.splitlines()[:2] == [
        "error: //:c was not built: mlcbuild-out/default/c is a file where the directory of outputs has to be",
        "    move it away",
    ]
    assert built.output("c").read_text() == "mine"


def test_all_outputs_gone_are_restored(built: World) -> None:
    shutil.rmtree(built.root / "mlcbuild-out")
    assert built.build().actions == {"up_to_date": 3}
    right(built)


def test_outputs_no_longer_made_are_removed_and_files_of_the_user_stay(built: World) -> None:
    mine = built.output("a/notes.txt")
    mine.write_text("mine")
    built.commands(command("a", "cat $2 $2 > $1", inputs=["in.txt"], outputs=["renamed"]), *CHAIN[1:])
    assert built.build().code == 0
    assert {path.name for path in built.output("a").iterdir()} == {"renamed", "notes.txt"}


@pytest.mark.parametrize("mode", [0o555, 0o500])
def test_folders_of_outputs_made_read_only_do_not_keep_the_next_build_from_them(built: World, mode: int) -> None:
    for folder in (built.output("c/c"), built.output("c"), built.output("a")):
        folder.chmod(mode)
    built.write("in.txt", "IN\n")
    assert built.build().code == 0
    assert built.output("c/c/one").read_bytes() == b"IN\n" * 4
    for folder in (built.output("a"), built.output("c"), built.output("c/c")):
        folder.chmod(0o755)


@pytest.mark.parametrize("damage", [delete, cut, empty, flip])
def test_damaged_state_of_the_workspace_costs_time_alone(built: World, damage: Damage) -> None:
    state = [path for path in (built.root / ".mlcbuild").iterdir() if path.is_file() and path.stat().st_size]
    assert len(state) >= 3
    for path in state:
        damage(path)
    done = built.build()
    assert done.code == 0
    assert sum(done.actions.values()) == done.actions.get("up_to_date", 0) + done.actions.get("disk_hits", 0) == 3
    right(built)


def test_stray_files_in_the_store_harm_nobody(built: World) -> None:
    for folder in ("cas", "ac", "cas/00", "ac/zz", "tmp"):
        (built.store / folder).mkdir(exist_ok=True)
        (built.store / folder / "stray").write_text("?")
    built.write("in.txt", "new\n")
    assert built.build().code == 0
    assert built.output("a/a").read_text() == "new\nnew\n"


def test_a_store_that_cannot_be_used_is_the_machines_fault(built: World) -> None:
    shutil.rmtree(built.store / "cas")
    (built.store / "cas").write_text("in the way")
    done = built.build()
    assert done.code == 36
    assert done.err.startswith("error: creating the store ")
    assert done.err.endswith("this may be retried: this machine failed, not your targets\n")
