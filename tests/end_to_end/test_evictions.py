"""Evictions beside builds: what a build needs stays, what has gone is made again, what is used is not old."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from tests.end_to_end.test_races import waiting
from tests.end_to_end.world import World, blob_of, command, is_awaited, wait_until

DAY_SECONDS = 86_400


def results_of(world: World) -> list[Path]:
    return sorted((world.store / "ac").glob("*/*"))


def make_old(world: World, days: int) -> None:
    then = time.time() - days * DAY_SECONDS
    for file in results_of(world):
        os.utime(file, (then, then))


def chain(marker: Path) -> tuple[str, ...]:
    """`b` needs `a`, and `slow` between them waits for a file."""
    return (
        command("a", f"cat $2 $2 > $1; echo ran >> {marker}.runs", inputs=["in.txt"], outputs=["a"]),
        command("slow", f"{waiting(marker)}; echo slow > $1", inputs=[":a"], outputs=["slow"]),
        command("b", "cat $2 $3 > $1", inputs=[":a", ":slow"], outputs=["b"]),
    )


def test_a_gc_while_a_build_runs_takes_nothing_that_it_needs(world: World) -> None:
    marker = world.folder / "marker"
    world.leave_sandbox()
    world.write("in.txt", "in\n")
    world.commands(*chain(marker), command("other", "echo other > $1"))
    assert world.build(":other").code == 0
    process = world.start("build", ":a", ":slow", ":b", "--jobs", "1")
    wait_until(lambda: is_awaited(marker), "the action")
    wait_until(lambda: len(results_of(world)) == 2, "the result of a")
    done = world.process("cache", "gc", "--max-size", "0")
    assert done.code == 0, done.err
    assert "removed 1 result, " in done.out, "that of the build before"
    assert "above the limit remain" in done.err
    marker.write_text("")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert Path(f"{marker}.runs").read_text() == "ran\n"
    assert world.output("b/b").read_text() == "in\nin\nslow\n"
    assert world.verify() == 3


def test_a_build_whose_blobs_were_evicted_all_the_same_makes_them_again(world: World) -> None:
    marker = world.folder / "marker"
    world.leave_sandbox()
    world.write("in.txt", "in\n")
    world.commands(*chain(marker))
    process = world.start("build", ":all", "--jobs", "1")
    wait_until(lambda: is_awaited(marker), "the action")
    wait_until(lambda: len(results_of(world)) == 1, "the result of a")
    shutil.rmtree(world.store / "leases")
    assert world.process("cache", "gc", "--max-size", "0").code == 0
    assert not blob_of(world, b"in\nin\n").exists()
    marker.write_text("")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert Path(f"{marker}.runs").read_text() == "ran\n" * 2
    assert world.output("b/b").read_text() == "in\nin\nslow\n"
    world.verify(complete=False)
    assert world.build().code == 0


def test_a_build_after_everything_was_evicted_makes_it_again(world: World) -> None:
    world.write("in.txt", "in\n")
    world.commands(command("x", "cat $2 > $1", inputs=["in.txt"], outputs=["x"]))
    world.build()
    assert world.mlcbuild("cache", "gc", "--max-size", "0").code == 0
    assert results_of(world) == []
    assert world.output("x/x").read_text() == "in\n", "outputs are no part of the cache"
    assert world.build().actions == {"executed_local": 1}
    assert world.verify() == 1


def test_results_of_builds_that_have_nothing_to_do_count_as_used(world: World) -> None:
    source = world.write("in.txt", "in\n")
    world.commands(command("x", "cat $2 > $1", inputs=["in.txt"], outputs=["x"]))
    for path in (source, world.root / "BUILD.toml"):
        os.utime(path, (1e9, 1e9))
    for arguments in (("build", ":x"), ("build", ":x", "--profile", str(world.folder / "profile"))):
        assert world.mlcbuild("build", ":x").code == 0
        make_old(world, 100)
        assert world.mlcbuild(*arguments).code == 0
        assert world.mlcbuild("cache", "gc", "--max-age", "30d").out.startswith("nothing to remove")
    make_old(world, 100)
    assert world.mlcbuild("cache", "gc", "--max-age", "30d").out.startswith("removed 1 result, ")


def test_large_outputs_that_share_their_file_with_the_store_are_not_touched(world: World) -> None:
    world.commands(command("x", f"head -c {9 << 20} /dev/zero > $1", outputs=["x"]))
    world.build()
    output = world.output("x/x")
    before = output.stat()
    make_old(world, 100)
    world.build()
    assert world.mlcbuild("cache", "gc", "--max-age", "30d").code == 0
    assert world.mlcbuild("cache", "verify").code == 0
    after = output.stat()
    assert (before.st_ctime_ns, before.st_mtime_ns) == (after.st_ctime_ns, after.st_mtime_ns)
    make_old(world, 100)
    assert world.mlcbuild("cache", "gc", "--max-age", "30d").code == 0
    assert output.stat().st_size == 9 << 20
    assert output.stat().st_nlink == 1
