"""Another folder, another user's home, another clock, other letters: the same results."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.world import World, command

NAMES = (
    "grüße.txt",
    "日本語.txt",
    "e\u0301.txt",
    "\u00e9.txt",
    "with space.txt",
    "quote'\".txt",
    "-dash.txt",
    "100%.txt",
)


def tables() -> tuple[str, ...]:
    return (
        command("a", "cat $2 > $1; pwd > /dev/null", inputs=["in.txt"], outputs=["a"]),
        command("b", "cat $2 $2 > ${1}one; : > ${1}two; chmod +x ${1}two", inputs=[":a"], outputs=["d/"]),
        command("c", "(cat $2*; env | sort | grep -v -e ^PWD -e ^HOME -e ^TMPDIR) > $1", inputs=[":b"], outputs=["c"]),
    )


def placed(world: World) -> dict[str, tuple[bytes, int]]:
    """Content and mode of all outputs."""
    return {
        path.relative_to(world.root).as_posix(): (path.read_bytes(), path.stat().st_mode)
        for path in (world.root / "mlcbuild-out").rglob("*")
        if path.is_file()
    }


def test_a_workspace_moved_elsewhere_hits_for_everything(tmp_path: Path) -> None:
    first = World(tmp_path)
    first.write("in.txt", "in\n")
    first.commands(*tables())
    assert first.build().actions == {"executed_local": 3}
    second = World(tmp_path, name="deep/er/another place with ünïcode")
    for name in ("in.txt", "BUILD.toml"):
        second.write(name, (first.root / name).read_bytes())
    done = second.build(HOME="/nonexistent", USER="another", TMPDIR=str(tmp_path), LANG="de_DE.UTF-8", PATH="/bin")
    assert done.actions == {"disk_hits": 3}
    assert placed(first) == placed(second)
    shutil.copytree(first.root, tmp_path / "copied", symlinks=True)
    third = World(tmp_path, name="copied")
    assert third.build().actions == {"up_to_date": 3}, "state may move with the workspace"
    assert third.output("c/c").read_bytes() == first.output("c/c").read_bytes()


def test_nothing_of_where_an_action_ran_gets_into_its_result(tmp_path: Path) -> None:
    outputs = []
    for name in ("one", "two/three"):
        world = World(tmp_path / name)
        world.write("in.txt", "in\n")
        world.commands(*tables())
        assert world.build().actions == {"executed_local": 3}
        outputs.append(world.output("c/c").read_bytes())
        keys = sorted(path.name for path in (world.store / "ac").glob("*/*"))
        outputs.append("\n".join(keys).encode())
    assert outputs[:2] == outputs[2:]


def test_a_cache_moved_elsewhere_hits(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("in.txt", "in\n")
    world.commands(*tables())
    world.build()
    # As `cp -r` would: without attributes, thus without the checksums that lie beside the blobs.
    for source in (world.cache / "mlcbuild").rglob("*"):
        if source.is_file():
            target = tmp_path / "moved" / source.relative_to(world.cache)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(0o444)
    other = World(tmp_path, name="other", cache=tmp_path / "moved")
    other.write("in.txt", "in\n")
    other.commands(*tables())
    assert other.build().actions == {"disk_hits": 3}
    assert other.verify() == 3


@pytest.mark.parametrize("when", [0, 1, 4_102_444_800, 17_179_869_183])
def test_times_of_files_decide_nothing(world: World, when: int) -> None:
    source = world.write("in.txt", "in\n")
    world.commands(*tables())
    os.utime(source, (when, when))
    assert world.build().actions == {"executed_local": 3}
    for path in [world.root / "BUILD.toml", source, *(p for p in world.cache.rglob("*") if p.is_file())]:
        os.utime(path, (when, when))
    assert world.build().actions == {"up_to_date": 3}
    source.write_text("IN\n")
    os.utime(source, (when, when))
    assert world.build().actions == {"executed_local": 3}
    assert world.output("a/a").read_text() == "IN\n"
    source.write_text("in\n")
    os.utime(source, (when, when))
    assert world.build().actions == {"disk_hits": 3}
    assert world.verify() == 6


def test_names_of_any_letters_are_kept_as_they_are(world: World) -> None:
    for name in NAMES:
        world.write(f"data/{name}", name)
    outputs = [f"out {name}" for name in NAMES]
    script = 'for file in in/data/*; do cp "$file" "out/out ${file##*/}"; cp "$file" out/d/; done'
    world.commands(command("x", script, inputs=["data"], outputs=[*outputs, "d/"]))
    for actions in ({"executed_local": 1}, {"disk_hits": 1}):
        done = world.build()
        assert (done.code, done.actions) == (0, actions), done.err
        assert {os.fsencode(path.name) for path in world.output("x/d").iterdir()} == set(map(os.fsencode, NAMES))
        for name in NAMES:
            assert world.output(f"x/out {name}").read_text(encoding="utf-8") == name
            assert world.output(f"x/d/{name}").read_text(encoding="utf-8") == name
            assert f"mlcbuild-out/default/x/out {name}" in done.out.splitlines()
        world.mlcbuild("clean")
    assert world.verify() == 1


def test_names_that_differ_in_form_alone_are_different_files(world: World) -> None:
    composed, decomposed = "\u00e9.txt", "e\u0301.txt"
    world.write(f"data/{composed}", "composed\n")
    world.write(f"data/{decomposed}", "decomposed\n")
    world.commands(command("x", "cp in/data/* $1", inputs=["data"], outputs=["d/"]))
    assert world.build().code == 0
    assert {path.name: path.read_text() for path in world.output("x/d").iterdir()} == {
        composed: "composed\n",
        decomposed: "decomposed\n",
    }


def test_a_source_whose_name_is_not_utf_8_is_refused_clearly(world: World) -> None:
    folder = world.root / "data"
    folder.mkdir()
    (folder / os.fsdecode(b"\xff.txt")).write_text("x")
    world.commands(command("x", "ls $2 > $1", inputs=["data"], outputs=["x"]))
    done = world.build()
    assert done.code == 7, done.err
    assert done.err == (
        "error: the file 'data/\\xff.txt' has a name that is not UTF-8\n  rename it, or take it out of the folder\n"
    )


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8", ""])
def test_the_locale_decides_nothing(tmp_path: Path, locale: str) -> None:
    world = World(tmp_path)
    world.write("data/größe.txt", "ä\n")
    world.commands(command("x", 'cat "$2" > $1; ls in/data >> $1', inputs=["data"], outputs=["ü"]))
    done = world.process("build", ":x", LC_ALL=locale, LANG=locale)
    assert done.code == 0, done.err
    assert world.output("x/ü").read_text(encoding="utf-8") == "ä\ngröße.txt\n"
    assert world.build().actions == {"up_to_date": 1}


def test_sources_may_be_links(world: World) -> None:
    world.write("real.txt", "real\n")
    (world.root / "link.txt").symlink_to("real.txt")
    outside = world.folder / "outside.txt"
    outside.write_text("outside\n")
    (world.root / "far.txt").symlink_to(outside)
    world.commands(command("x", "cat $2 $3 > $1", inputs=["link.txt", "far.txt"], outputs=["x"]))
    assert world.build().code == 0
    assert world.output("x/x").read_text() == "outside\nreal\n"
    outside.write_text("edited\n")
    assert world.build().actions == {"executed_local": 1}
    (world.root / "far.txt").unlink()
    (world.root / "far.txt").symlink_to("nowhere")
    done = world.build()
    assert done.code in (1, 7)
    assert "far.txt" in done.err
    assert "Traceback" not in done.err
