"""Edits after which other build systems served results of before: files that come and go, steps that fail, steps that
are repeated alone.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.world import HEAD, World, command

# A file is searched for in one folder, then in the next, as a compiler searches for headers.
SEARCH = "for folder in in/first in/second; do [ ! -f $folder/name ] || exec cat $folder/name > $1; done; exit 4"


def text(world: World, path: str) -> str:
    return world.output(path).read_text()


def test_a_file_that_appears_earlier_on_a_search_path_counts(world: World) -> None:
    world.write("first/other", "")
    world.write("second/name", "second\n")
    world.commands(command("x", SEARCH, inputs=["first", "second"]))
    assert world.build().code == 0
    assert text(world, "x/out") == "second\n"
    hidden = world.write("first/name", "first\n")
    assert world.build().actions == {"executed_local": 1}
    assert text(world, "x/out") == "first\n"
    hidden.unlink()
    assert world.build().code == 0
    assert text(world, "x/out") == "second\n"


def test_a_listing_is_as_much_an_input_as_what_the_files_hold(world: World) -> None:
    world.write("d/a", "")
    world.commands(command("x", "ls -R in > $1", inputs=["d"]))
    assert world.build().code == 0
    for change in (
        lambda: world.write("d/b", ""),
        lambda: (world.root / "d/a").rename(world.root / "d/c"),
        lambda: world.write("d/e/f", ""),
        lambda: (world.root / "d/b").unlink(),
    ):
        before = text(world, "x/out")
        change()
        assert world.build().actions == {"executed_local": 1}
        assert text(world, "x/out") != before
    (world.root / "d/empty").mkdir()
    assert world.build().actions == {"up_to_date": 1}, "an empty folder is not laid out, so it cannot count"


def test_a_step_that_fails_after_an_edit_does_not_make_what_follows_up_to_date(world: World) -> None:
    first = command("a", "cat $2 > $1", inputs=["in.txt"])
    second = command("b", "cat $2 > $1", inputs=[":a"])
    world.write("in.txt", "1\n")
    world.commands(first, second)
    assert world.build().code == 0
    world.commands(command("a", "cat $2 > nowhere/$1", inputs=["in.txt"]), second)
    for _ in range(2):
        done = world.build()
        assert (done.code, done.actions) == (1, {"failed": 1, "skipped": 1})
    world.commands(first, second)
    assert world.build().code == 0
    assert text(world, "b/out") == "1\n"


def test_a_step_that_was_built_alone_is_not_what_later_steps_are_compared_with(world: World) -> None:
    world.write("in.txt", "1\n")
    world.commands(
        command("a", "cat $2 > $1", inputs=["in.txt"]),
        command("b", "cat $2 > $1", inputs=[":a"]),
    )
    assert world.build().code == 0
    world.write("in.txt", "2\n")
    assert world.build(":a").actions == {"executed_local": 1}
    assert world.build(":b").code == 0
    assert text(world, "b/out") == "2\n"


def test_a_tools_own_files_are_inputs_of_what_it_makes(world: World) -> None:
    script = world.write("tool.sh", '#!/bin/sh\ncat "$(dirname "$0")/table" > "$1"\n', executable=True)
    world.write("table", "1\n")
    head = HEAD + '\n[[tool]]\nname = "made"\nexecutable = "tool.sh"\n'
    world.write(
        "BUILD.toml", head + '[[command]]\nname = "x"\ntool = ":made"\noutputs = ["out"]\narguments = ["out/out"]\n'
    )
    done = world.build()
    assert done.code == 1, "the table is not declared, so the tool does not see it"
    script.write_text('#!/bin/sh\necho 1 > "$1"\n')
    assert world.build().code == 0
    script.write_text('#!/bin/sh\necho 2 > "$1"\n')
    assert world.build().actions == {"executed_local": 1}
    assert text(world, "x/out") == "2\n"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_a_file_that_assembly_includes_by_name_must_be_declared(world: World, tmp_path: Path) -> None:
    secret = tmp_path / "data.bin"
    secret.write_text("1")
    world.write("a.S", f'.section .rodata\n.incbin "{secret}"\n')
    compiler = f'\n[[tool]]\nname = "gcc"\npath = "{shutil.which("gcc")}"\n'
    table = (
        '[[command]]\nname = "x"\ntool = ":gcc"\ninputs = ["a.S"]\noutputs = ["a.o"]\n'
        'arguments = ["-c", "-o", "{outputs}", "{inputs}"]\n'
    )
    world.write("BUILD.toml", HEAD + compiler + table)
    done = world.build()
    assert done.code == 1
    assert "data.bin" in done.err
    assert world.verify() == 0
    world.write("data.bin", "1")
    world.write("a.S", '.section .rodata\n.incbin "in/data.bin"\n')
    table = table.replace('["a.S"]', '["a.S", "data.bin"]').replace('"{inputs}"', '"in/a.S"')
    world.write("BUILD.toml", HEAD + compiler + table)
    assert world.build().code == 0
    world.write("data.bin", "2")
    assert world.build().actions == {"executed_local": 1}


@pytest.mark.parametrize("limit", [12, 16, 20, 32])
def test_a_lack_of_file_descriptors_poisons_nothing(world: World, limit: int) -> None:
    """Whatever the build makes of it, the next one with enough of them is right."""
    world.commands(
        command("a", "exec 8>$1; for i in 1 2 3; do echo $i >&8; done"), command("b", "cat $2 $2 > $1", inputs=[":a"])
    )
    few = f'ulimit -n {limit}; exec "$0" "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", few, *world.command("build", ":all")],
        cwd=world.root,
        env=world.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode in {0, 1, 36}, done.stderr
    assert "Traceback" not in done.stderr
    world.verify()
    assert world.build().code == 0
    assert text(world, "b/out") == "1\n2\n3\n" * 2
