"""`mlcbuild build --check-determinism`: what depends on anything but its inputs is found, and its difference named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.world import World, command

PURE = command("pure", "cat $2 > $1", inputs=("text",))


@pytest.mark.parametrize(
    ("script", "difference"),
    [
        ("pwd > $1", "line 1:"),
        ("date +%s%N > $1", "line 1:"),
        ("date +%Z -d @0 > $1", 'line 1: "UTC" against "+14"'),
        ("echo $PYTHONHASHSEED > $1", 'line 1: "0" against "1"'),
        ("echo $$ > $1", "line 1:"),
        ("mkdir -p out/d; touch out/d/$(basename $(pwd)); touch $1", "which only the"),
    ],
)
def test_a_dependence_on_surroundings_is_found(world: World, script: str, difference: str) -> None:
    outputs = ("out", "d/") if "out/d" in script else ("out",)
    world.write("text", "one\n")
    world.commands(PURE, command("impure", script, outputs=outputs))
    assert world.build().code == 0
    done = world.build("--check-determinism", "--keep-going")
    assert done.code == 1
    assert "//:impure Command failed" in done.err
    assert "is not deterministic: two runs differ in out/" in done.err
    assert difference in done.err
    assert done.actions == {"executed_local": 1, "failed": 1}
    world.verify()


def test_pure_actions_pass_and_run_whatever_is_cached(world: World) -> None:
    world.write("text", "one\n")
    runs = world.folder / "runs"
    world.leave_sandbox()
    world.commands(command("counted", f"echo x >> {runs}; cat $2 > $1", inputs=("text",)))
    assert world.build().actions == {"executed_local": 1}
    assert world.build().actions == {"up_to_date": 1}
    assert world.build("--check-determinism").actions == {"executed_local": 1}
    assert runs.read_text() == "x\n" * 3
    assert world.build().actions == {"up_to_date": 1}


def test_what_is_declared_to_differ_runs_once(world: World) -> None:
    runs = world.folder / "runs"
    world.leave_sandbox()
    world.commands(command("measured", f"echo x >> {runs}; date +%s%N > $1", more='cache = "none"'))
    assert world.build("--check-determinism").code == 0
    assert runs.read_text() == "x\n"


def test_what_is_declared_to_be_non_reproducible_is_told_and_fails_nothing(world: World) -> None:
    runs = world.folder / "runs"
    world.leave_sandbox()
    more = 'cache = "non-reproducible"'
    world.commands(
        command("varied", f"echo x >> {runs}; date +%s%N > $1", more=more),
        command("steady", "echo one > $1", more=more),
        command("user", "cat $2 > $1", inputs=(":varied",)),
    )
    done = world.build("--check-determinism")
    assert done.code == 0
    assert "//:varied Command is declared to be non-reproducible: two runs differ in out/" in done.err
    assert "line 1:" in done.err
    assert "//:steady Command is" not in done.err
    assert runs.read_text() == "x\n" * 2
    assert world.build().actions == {"up_to_date": 3}
    world.verify()


def test_a_second_run_that_fails_is_told(world: World) -> None:
    world.commands(command("moody", 'test "$PYTHONHASHSEED" = 0; touch $1'))
    done = world.build("--check-determinism")
    assert done.code == 1
    assert "it had succeeded before, in another environment" in done.err


def test_both_files_can_be_looked_at(world: World) -> None:
    world.commands(command("impure", "pwd > $1"))
    done = world.build("--check-determinism")
    line = next(line for line in done.err.splitlines() if "the files: " in line)
    first, second = line.partition("the files: ")[2].split(" and ")
    contents = {Path(path).read_text() for path in (first, second)}
    assert len(contents) == 2
    assert any(" " in content for content in contents)
