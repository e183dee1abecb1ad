"""Mojo in its environment. It is proprietary: whoever runs this accepts its licence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.compilers.compiler_world import CompilerWorld, ran
from tests.remote.http_server import running
from tests.small_wheels import write_wheel

pytestmark = pytest.mark.exhaustive
LICENSE = "License-Expression: Apache-2.0\n"
PROGRAM = """\
def dot(a: List[Float32], b: List[Float32]) -> Float32:
    var total: Float32 = 0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


def main():
    var a: List[Float32] = [1, 2, 3]
    var b: List[Float32] = [4, 5, 6]
    print(dot(a, b))
"""


def compiler_world(folder: Path) -> CompilerWorld:
    world = CompilerWorld(folder, "mojo")
    world.write("dot.mojo", PROGRAM)
    binary(world)
    world.table("printed", "answer", artifact=":dot", environment=":mojo")
    return world


def binary(world: CompilerWorld, cpu: str = "x86-64-v2", **more: str) -> None:
    world.table("mojo_binary", "dot", source="dot.mojo", environment=":mojo", cpu=cpu, **more)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> CompilerWorld:
    return compiler_world(tmp_path_factory.mktemp("mojo"))


def test_a_program_runs_and_an_edit_builds_it_again(world: CompilerWorld) -> None:
    assert world.build("//:answer").code == 0
    assert world.output("answer/printed.txt").read_text() == "32.0\n"
    assert ran(world.build("//:answer")) == set()
    world.write("dot.mojo", PROGRAM.replace("[4, 5, 6]", "[4, 5, 7]"))
    assert ran(world.build("//:dot", "//:answer")) == {"dot", "answer"}
    assert world.output("answer/printed.txt").read_text() == "35.0\n"
    binary(world, optimization="0")
    assert ran(world.build("//:dot")) == {"dot"}, "another level of optimization"
    binary(world, cpu="x86-64-v3")
    assert ran(world.build("//:dot")) == {"dot"}, "another processor"


def test_another_version_builds_again_and_a_machine_with_nothing_takes_all_from_a_remote(tmp_path: Path) -> None:
    """And two folders, each with empty caches, make the same bytes."""
    with running() as cache:
        remote = {"MLCBUILD_REMOTE": cache.address, "MLCBUILD_REMOTE_ROLE": "read-write"}
        one, other, apart = (compiler_world(tmp_path / name) for name in ("one", "other", "a longer folder"))
        one.environment |= remote
        other.environment |= remote
        assert one.build("//:dot").code == 0
        done = other.build("//:dot")
        assert done.code == 0, done.err
        assert done.actions.keys() - {"disk_hits"} == {"remote_hits"}, "no wheel is fetched, and nothing runs"
        assert apart.build("//:dot").actions.keys() - {"disk_hits"} == {"executed_local"}
        made = [world.output("dot/dot").read_bytes() for world in (one, other, apart)]
        assert made[0] == made[1] == made[2]

        line = write_wheel(tmp_path / "wheels", "mlcbuild-version-marker", "1.0", {"marker.py": ""}, metadata=LICENSE)
        one.write("mojo.txt", (one.root / "mojo.txt").read_text() + line[1])
        found = one.environment.get("PIP_FIND_LINKS", "")
        one.environment["PIP_FIND_LINKS"] = f"{found} {tmp_path / 'wheels'}".strip()
        assert ran(one.build("//:dot")) == {"dot"}, "another content of its environment"


def test_a_mistake_is_told_in_the_compilers_words(world: CompilerWorld) -> None:
    world.write("wrong.mojo", "def main():\n    print(nothing)\n")
    world.table("mojo_binary", "wrong", source="wrong.mojo", environment=":mojo", cpu="x86-64-v2")
    done = world.build("//:wrong")
    assert done.code == 1
    assert "Mojo cannot build the program: program.mojo:2:11: error: " in done.err


def test_the_same_bytes_in_another_surrounding(world: CompilerWorld) -> None:
    """The action runs twice, in other folders and with other variables."""
    done = world.build("--check-determinism", "//:dot")
    assert done.code == 0, done.err
