"""A disk that fills up, or may only be read, for the cache and for the outputs: mounts in a namespace of our own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.world import PROJECT

_PREAMBLE = """
import subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.end_to_end.world import World, command
world = World(Path(sys.argv[2]))

def mount(folder, *options):
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "none", str(folder)], check=True)
"""


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    allowed = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    if allowed.returncode:
        pytest.skip(f"no mount namespace of our own here: {allowed.stderr.decode().strip()}")
    return Inside(tmp_path)


class Inside:
    """Runs a program where it may mount what it likes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, program: str) -> None:
        done = subprocess.run(
            [
                "unshare",
                "-m",
                "--propagation",
                "private",
                sys.executable,
                "-c",
                _PREAMBLE + program,
                PROJECT,
                self._folder,
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr


def test_a_full_disk_under_the_cache_ends_the_build_and_keeps_nothing_half_written(
    inside: Inside, tmp_path: Path
) -> None:
    inside.run("""
mount(world.cache, "size=2m")
world.commands(
    command("small", "echo small > $1", outputs=["small"]),
    command("big", "head -c 8000000 /dev/urandom > $1", outputs=["big"]),
    command("after", "cat $2 $3 > $1", inputs=[":big", ":small"], outputs=["after"]),
)
done = world.build(":after")
assert done.code == 36, done.err
assert "no space left while writing to the store " in done.err, done.err
assert "free some space on that file system, or move the cache: set XDG_CACHE_HOME to another disk" in done.err
assert done.err.endswith("this may be retried: this machine failed, not your targets\\n"), done.err
assert done.actions["failed"] == 1
assert world.verify() == done.actions.get("executed_local", 0)
subprocess.run(["mount", "-o", "remount,size=200m", str(world.cache)], check=True)
done = world.build(":after")
assert done.code == 0, done.err
assert world.output("after/after").stat().st_size == 8000006
assert world.verify() == 3
""")


def test_a_cache_without_room_for_anything_is_told_before_the_build(inside: Inside) -> None:
    inside.run("""
mount(world.cache, "size=64k", "nr_inodes=5")
world.commands(command("x", "echo > $1"))
done = world.build()
assert done.code == 36, done.err
assert "no space left while creating the store " in done.err, done.err
assert "Traceback" not in done.err
""")


def test_a_full_disk_under_the_outputs_is_told_and_what_was_made_is_kept(inside: Inside) -> None:
    inside.run("""
world.commands(
    command("x", "head -c 4000000 /dev/zero > $1", outputs=["x"]),
    command("y", "echo y > $1", outputs=["y"]),
)
mount(world.root / "mlcbuild-out", "size=1m")
done = world.build("--keep-going")
assert done.code == 36, done.err
assert "error: //:x was not built: no space left while placing outputs under " in done.err, done.err
assert done.actions == {"executed_local": 2}
assert world.output("y/y").read_text() == "y\\n"
assert [path.name for path in world.output("x").iterdir()] == [], "nothing half-placed"
subprocess.run(["mount", "-o", "remount,size=100m", str(world.root / "mlcbuild-out")], check=True)
done = world.build()
assert (done.code, done.actions) == (0, {"up_to_date": 2}), done.err
assert world.output("x/x").stat().st_size == 4000000
assert world.verify() == 2
""")


def test_a_full_disk_under_the_workspace_where_actions_run(inside: Inside) -> None:
    inside.run("""
mount(world.root, "size=1m")
world.commands(command("x", "head -c 4000000 /dev/zero > $1", outputs=["x"]))
done = world.build()
assert done.code in (1, 36), done.err
assert "No space left on device" in done.err, done.err
assert world.verify() == 0
subprocess.run(["mount", "-o", "remount,size=100m", str(world.root)], check=True)
assert world.build().actions == {"executed_local": 1}
assert world.verify() == 1
""")


def test_a_cache_on_a_read_only_file_system_is_the_machines_fault(inside: Inside) -> None:
    inside.run("""
mount(world.cache, "size=1m")
subprocess.run(["mount", "-o", "remount,ro", str(world.cache)], check=True)
world.commands(command("x", "echo > $1"))
done = world.build()
assert done.code == 36, done.err
assert "Read-only file system" in done.err
assert "check the owner and mode of that path, or set XDG_CACHE_HOME to a folder you can write" in done.err
""")


def test_a_cache_on_another_file_system_than_the_workspace(inside: Inside) -> None:
    inside.run("""
mount(world.cache, "size=100m")
world.commands(command("x", "head -c 9000000 /dev/zero > $1; echo > ${1}2", outputs=["x", "x2"]))
assert world.build().actions == {"executed_local": 1}
assert world.output("x/x").stat().st_size == 9000000
assert world.mlcbuild("clean").code == 0
assert world.build().actions == {"disk_hits": 1}
assert world.verify() == 1
""")


def test_commands_that_only_look_need_no_writable_cache(inside: Inside) -> None:
    inside.run("""
world.commands(command("x", "echo x > $1"))
assert world.mlcbuild("explain", ":x").code == 0
assert world.build().code == 0
world.write("BUILD.toml", (world.root / "BUILD.toml").read_text().replace("echo x", "echo y"))
for folder in (world.cache, world.root):
    subprocess.run(["mount", "--bind", "-o", "ro", str(folder), str(folder)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
    for asked in (["explain", ":x"], ["build", "--dry-run", ":x"], ["aquery", ":x"], ["show", ":x"]):
        done = world.mlcbuild(*asked)
        assert done.code in (0, 10), (asked, done.err)
        assert "would run" in done.out or asked[0] == "aquery", (asked, done.out)
assert world.mlcbuild("explain", ":x", "--disk-cache", str(world.root / "absent")).code == 0
assert world.build().code == 36
""")
