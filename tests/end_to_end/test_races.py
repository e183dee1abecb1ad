"""What others do while a build runs: edit its sources, build beside it, empty its cache."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.world import World, blob_of, command, is_awaited, until_there, wait_until


def append(file: Path) -> None:
    with file.open("a") as stream:
        stream.write("new\n")


EDITS: dict[str, Callable[[Path], object]] = {
    "written anew": lambda file: file.write_text("new\n"),
    "appended to": lambda file: append(file),
    "replaced": lambda file: file.with_name("other").rename(file),
    "made executable": lambda file: file.chmod(0o755),
    "deleted": lambda file: file.unlink(),
}


def waiting(marker: Path) -> str:
    """A script that reads its input, and ends when `marker` is there."""
    return f"cat $2 > $1; {until_there(marker)}"


@pytest.mark.parametrize("edit", list(EDITS))
def test_a_source_that_changes_while_its_action_runs_poisons_nothing(world: World, edit: str) -> None:
    marker = world.folder / "marker"
    source = world.write("in.txt", "old\n")
    world.write("other", "other\n")
    world.commands(command("x", waiting(marker), inputs=["in.txt"], outputs=["x"]))
    process = world.start("build", ":x")
    wait_until(lambda: is_awaited(marker), "the action")
    EDITS[edit](source)
    marker.write_text("")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the source file 'in.txt' changed during the build; nothing made from it was kept: build again\n" in err, err
    assert world.verify() == 0
    assert not world.output("x").exists()
    if edit == "deleted":
        world.write("in.txt", "restored\n")
    assert world.build().actions == {"executed_local": 1}
    assert world.output("x/x").read_text() == source.read_text()
    source.unlink()
    world.write("in.txt", "old\n")
    world.build()
    assert world.output("x/x").read_text() == "old\n"
    world.verify()


def test_a_touch_while_the_action_runs_is_no_change(world: World) -> None:
    marker = world.folder / "marker"
    source = world.write("in.txt", "old\n")
    world.commands(command("x", waiting(marker), inputs=["in.txt"], outputs=["x"]))
    process = world.start("build", ":x")
    wait_until(lambda: is_awaited(marker), "the action")
    os.utime(source)
    marker.write_text("")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


def test_an_edit_with_the_size_and_the_time_of_the_old_file_is_seen(world: World) -> None:
    source = world.write("in.txt", "old\n")
    world.commands(command("x", "cat $2 > $1", inputs=["in.txt"], outputs=["x"]))
    for text in ("one\n", "two\n", "six\n"):
        before = source.stat()
        source.write_text(text)
        os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert world.build().code == 0
        assert world.output("x/x").read_text() == text


def test_a_second_build_in_the_workspace_waits_for_the_first(world: World) -> None:
    marker = world.folder / "marker"
    world.write("in.txt", "in\n")
    world.commands(command("x", waiting(marker), inputs=["in.txt"], outputs=["x"]))
    first = world.start("build", ":x")
    wait_until(lambda: is_awaited(marker), "the action")
    second = world.start("build", ":x")
    assert second.stderr is not None
    assert second.stderr.readline() == (f"note: waiting for process {first.pid}, which is building in this workspace\n")
    assert second.poll() is None
    marker.write_text("")
    out, err = first.communicate(timeout=60)
    assert (first.returncode, out) == (0, "mlcbuild-out/default/x/x\n"), err
    out, err = second.communicate(timeout=60)
    assert (second.returncode, out) == (0, "mlcbuild-out/default/x/x\n"), err
    assert err.startswith("1 action: 1 up to date · ")
    assert world.verify() == 1


def test_workspaces_that_build_the_same_at_once_on_one_cache_are_all_right(tmp_path: Path) -> None:
    worlds = [World(tmp_path, name=f"workspace-{index}") for index in range(3)]
    for world in worlds:
        world.write("in.txt", "in\n")
        world.commands(
            *(
                command(f"t{n}", f"head -c {1 << 18} /dev/zero > $1; cat $2 >> $1", inputs=["in.txt"], outputs=["out"])
                for n in range(4)
            ),
        )
    processes = [world.start("build", ":all", "--jobs", "2") for world in worlds]
    for world, process in zip(worlds, processes, strict=True):
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        for n in range(4):
            assert world.output(f"t{n}/out").read_bytes() == bytes(1 << 18) + b"in\n"
    assert worlds[0].verify() == 4
    for world in worlds:
        assert world.build().actions == {"up_to_date": 4}


def test_equal_actions_of_one_build_run_once(world: World) -> None:
    world.write("in.txt", "in\n")
    log = world.folder / "runs"
    world.leave_sandbox()
    tables = [
        command("same", f"echo ran >> {log}; cat $2 > $1", inputs=["in.txt"]).replace('"same"', f'"t{n}"', 1)
        for n in range(6)
    ]
    world.commands(*tables)
    assert world.build("--jobs", "4").actions == {"executed_local": 1, "disk_hits": 5}
    assert log.read_text() == "ran\n"
    assert all(world.output(f"t{n}/out").read_text() == "in\n" for n in range(6))


def test_blobs_that_go_while_the_build_runs_are_made_again(world: World) -> None:
    marker, runs = world.folder / "marker", world.folder / "runs"
    world.leave_sandbox()
    world.write("in.txt", "in\n")
    world.commands(
        command("a", f"cat $2 $2 > $1; echo ran >> {runs}", inputs=["in.txt"], outputs=["a"]),
        # It makes bytes of its own: others would bring back what has gone.
        command("slow", f"{waiting(marker)}; echo slow > $1", inputs=[":a"], outputs=["slow"]),
        command("b", "cat $2 $3 > $1", inputs=[":a", ":slow"], outputs=["b"]),
    )
    process = world.start("build", ":all", "--jobs", "1")
    wait_until(lambda: is_awaited(marker), "the action")
    blob_of(world, b"in\nin\n").unlink()
    marker.write_text("")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert world.output("a/a").read_text() == "in\n" * 2
    assert world.output("b/b").read_text() == "in\nin\nslow\n"
    assert runs.read_text() == "ran\n" * 2
    assert world.verify() == 3


def test_a_cache_emptied_while_the_build_runs_fails_nothing(world: World) -> None:
    marker = world.folder / "marker"
    world.write("in.txt", "in\n")
    world.commands(
        command("a", "cat $2 $2 > $1", inputs=["in.txt"], outputs=["a"]),
        # It makes bytes of its own: others would bring back what has gone.
        command("slow", f"{waiting(marker)}; echo slow > $1", inputs=[":a"], outputs=["slow"]),
        command("b", "cat $2 $3 > $1", inputs=[":a", ":slow"], outputs=["b"]),
    )
    process = world.start("build", ":all", "--jobs", "1")
    wait_until(lambda: is_awaited(marker), "the action")
    for folder in ("cas", "ac"):
        shutil.rmtree(world.store / folder)
    marker.write_text("")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert world.output("b/b").read_text() == "in\nin\nslow\n"
    assert world.build().code == 0
    world.verify(complete=False)
