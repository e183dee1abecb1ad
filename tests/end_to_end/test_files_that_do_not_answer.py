"""Pipes in the places of files are told. While a file system does not answer, signals still end a build."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.silent_file_system import silent_file_system
from tests.end_to_end.world import PATIENCE_SECONDS, World, command

TABLES = (
    command("a", "cat $2 > $1", inputs=["in.txt"], outputs=["a"]),
    command("f", "find in -type f | sort | xargs cat > $1", inputs=["d"], outputs=["d.txt"]),
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.commands(*TABLES)
    world.write("in.txt", "in\n")
    world.write("d/one.txt", "one\n")
    return world


def pipe(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def listening(path: Path) -> None:
    path.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


@pytest.mark.parametrize("put", [pipe, listening, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("path", ["in.txt", "d/two.txt"])
def test_a_source_that_is_no_regular_file_is_told(world: World, path: str, put: Callable[[Path], None]) -> None:
    (world.root / path).unlink(missing_ok=True)
    put(world.root / path)
    done = world.process("build", "--keep-going", ":all")
    assert done.code == 1
    assert f"'{path}'" in done.err
    assert "not a regular file" in done.err or "No such device" in done.err


def test_a_pipe_is_no_build_file(world: World) -> None:
    pipe(world.root / "package/BUILD.toml")
    done = world.process("build", "//package:all")
    assert done.code == 7
    assert "there is no package/BUILD.toml" in done.err


def test_settings_that_are_a_pipe_are_told(world: World, tmp_path: Path) -> None:
    pipe(tmp_path / "settings/mlcbuild/settings.toml")
    done = world.process("build", ":all", XDG_CONFIG_HOME=str(tmp_path / "settings"))
    assert done.code == 7
    assert "settings.toml: the file cannot be read: it is not a regular file" in done.err


@pytest.mark.parametrize("command", [["build", "//:a"], ["log"], ["info"], ["cache", "stats"], ["cache", "verify"]])
def test_pipes_in_place_of_what_was_stored_keep_no_command(world: World, command: list[str]) -> None:
    assert world.process("build", ":all").code == 0
    kept = world.root / ".mlcbuild/lock"
    for folder in (world.root / ".mlcbuild", world.store):
        for path in [path for path in folder.rglob("*") if path.is_file() and path != kept]:
            pipe(path)
    shutil.rmtree(world.root / "mlcbuild-out")
    done = world.process(*command)
    assert done.code in (0, 36), done.err
    assert "Traceback" not in done.err
    if command[0] == "build":
        assert world.output("a/a").read_text() == "in\n"


def test_a_lock_that_is_a_pipe_is_told(world: World) -> None:
    pipe(world.root / ".mlcbuild/lock")
    done = world.process("build", ":all")
    assert done.code == 36
    assert "cannot be opened: it is not a regular file" in done.err


def test_the_event_log_may_be_a_pipe(world: World) -> None:
    pipe(world.root / "events")
    process = world.start("build", ":a", "--events", "events")
    with (world.root / "events").open() as events:
        lines = events.readlines()
    _, told = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, told
    assert len(lines) > 3
    process = world.start("build", ":a", "--events", "events")  # and nobody reads
    time.sleep(1)
    process.terminate()
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGTERM
    process.communicate()


@pytest.mark.skipif(os.getuid() != 0 or not Path("/dev/fuse").exists(), reason="mounts a file system")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("place", ["a source", "the results of the cache"])
@pytest.mark.parametrize("when", ["open", "stat"])
def test_signals_end_a_build_that_waits_for_a_file_system(
    world: World, place: str, when: str, number: signal.Signals
) -> None:
    world.process("build", ":a")
    if place == "a source":
        folder, name = world.root / "d", ":f"
        (folder / "one.txt").unlink()
    else:
        (result,) = [path for path in world.store.rglob("*") if path.is_file() and path.parent.parent.name == "ac"]
        folder, name = result.parent, ":a"
        shutil.rmtree(world.root / ".mlcbuild")
    with silent_file_system(folder, when=when, name="file.txt" if place == "a source" else result.name) as silent:
        process = world.start("build", name)
        try:
            while not silent.asked.wait(0.1):
                assert process.poll() is None, process.communicate()
            time.sleep(0.5)
            process.send_signal(number)
            if when == "stat":  # A second signal does not wait for long.
                time.sleep(1)
                process.send_signal(number)
            process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode in (8, -number, 130)
