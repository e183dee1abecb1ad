"""Whatever is killed in the middle of a build: nothing is left running, nothing half done, the next build is right.

Everything here is a process of its own, found by its parent.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.world import (
    World,
    children_of,
    command,
    descendants_of,
    long_sleep,
    processes_of_session,
    sleeping,
    wait_until,
)

SLOW = "[ -e {marker} ] || {sleep}; cat $2 $2 > $1"


class Stage:
    """Three commands in a chain; the second sleeps as long as `marker` is not there."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.marker = world.folder / "marker"
        self.sleep = long_sleep(120)
        world.write("in.txt", "in\n")
        world.commands(
            command("first", "cat $2 $2 > $1", inputs=["in.txt"], outputs=["first"]),
            command("second", SLOW.format(marker=self.marker, sleep=self.sleep), inputs=[":first"], outputs=["second"]),
            command("third", "cat $2 $2 > $1", inputs=[":second"], outputs=["third"]),
        )

    def begin(self, *options: str) -> subprocess.Popen[str]:
        """A build whose second action runs."""
        process = self.world.start("build", ":third", "--jobs", "1", *options)
        wait_until(lambda: sleeping(self.sleep) or process.poll() is not None, "the second action")
        assert process.poll() is None, process.communicate()
        return process

    def wake(self) -> None:
        self.marker.write_text("")

    def finish(self, **actions: int) -> None:
        """The next build is right, and these actions are all that it counts."""
        self.wake()
        done = self.world.build(":third")
        assert (done.code, done.actions) == (0, actions), done.err
        assert self.world.output("third/third").read_text() == "in\n" * 8
        assert self.world.verify() == 3
        assert self.world.scratch == []
        assert self.world.build(":third").actions == {"up_to_date": 3}


@pytest.fixture(autouse=True)
def _hang_up_is_heard() -> Iterator[None]:
    """Whoever runs the tests may have had hang-ups ignored, which its children inherit."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def stage(world: World) -> Stage:
    return Stage(world)


@pytest.fixture
def building(stage: Stage) -> Iterator[subprocess.Popen[str]]:
    process = stage.begin()
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def fork_server_of(process: subprocess.Popen[str]) -> int:
    (server,) = children_of(process.pid)
    return server


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def ended(processes: list[int]) -> bool:
    def is_running(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    return not any(is_running(pid) for pid in processes)


def test_a_killed_action_is_told_as_such(stage: Stage, building: subprocess.Popen[str]) -> None:
    (action,) = (pid for pid in children_of(fork_server_of(building)) if name_of(pid) != "guardian")
    os.kill(action, signal.SIGKILL)
    _, err = building.communicate(timeout=60)
    assert building.returncode == 36
    assert "//:second Command failed after" in err
    assert "was killed (SIGKILL), not by the OOM killer; it had used 0.0 GiB\n" in err
    assert "error: //:third was not built: //:second Command failed\n" in err
    assert err.endswith("this may be retried: this machine failed, not your targets\n")
    assert stage.world.verify() == 1
    stage.finish(up_to_date=1, executed_local=2)


def test_a_killed_fork_server_is_started_again(stage: Stage, building: subprocess.Popen[str]) -> None:
    server = fork_server_of(building)
    below = descendants_of(server)
    stage.wake()
    os.kill(server, signal.SIGKILL)
    _, err = building.communicate(timeout=60)
    assert building.returncode == 0, err
    assert "note: //:second Command runs again: the worker that ran //:second Command died\n" in err
    wait_until(lambda: ended(below), "the end of what the killed server ran")
    assert stage.world.output("third/third").read_text() == "in\n" * 8
    stage.finish(up_to_date=3)


@pytest.mark.slow
def test_a_server_that_is_killed_again_and_again_fails_the_build_alone(
    stage: Stage, building: subprocess.Popen[str]
) -> None:
    killed: set[int] = set()

    def is_tried_again() -> bool:
        return building.poll() is not None or not killed.issuperset(sleeping(stage.sleep))

    while building.poll() is None:
        killed.update(sleeping(stage.sleep))
        for server in children_of(building.pid):
            os.kill(server, signal.SIGKILL)
        wait_until(is_tried_again, "another try, or the end")
    _, err = building.communicate(timeout=60)
    assert building.returncode in (1, 36)
    assert "//:second Command failed" in err
    assert "lost" in err
    stage.finish(up_to_date=1, executed_local=2)


def test_a_killed_client_leaves_nothing_running_and_what_was_finished_is_found(
    stage: Stage, building: subprocess.Popen[str]
) -> None:
    below = descendants_of(building.pid)
    assert len(below) >= 3, "the server, the shell and its sleep"
    building.kill()
    building.wait()
    wait_until(lambda: ended(below), "the end of all that the client had started")
    stage.world.verify()
    stage.finish(disk_hits=1, executed_local=2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_build_ends_with_8_and_the_next_one_goes_on(
    stage: Stage, building: subprocess.Popen[str], number: signal.Signals
) -> None:
    below = descendants_of(building.pid)
    building.send_signal(number)
    out, err = building.communicate(timeout=60)
    assert (building.returncode, out) == (8, "")
    assert "Traceback" not in err
    assert err.splitlines()[-1].endswith("· interrupted") or "critical path" in err.splitlines()[-1]
    assert ended(below)
    assert not stage.world.output("third").exists()
    assert stage.world.verify() == 1
    stage.finish(up_to_date=1, executed_local=2)


def test_ctrl_c_on_a_terminal_reaches_everybody_and_the_client_still_ends_in_order(
    stage: Stage, building: subprocess.Popen[str]
) -> None:
    below = descendants_of(building.pid)
    os.killpg(building.pid, signal.SIGINT)
    _, err = building.communicate(timeout=60)
    assert building.returncode == 8, err
    assert ended(below)
    assert processes_of_session(building.pid) == []
    stage.finish(up_to_date=1, executed_local=2)


def test_two_signals_end_it_at_once(stage: Stage, building: subprocess.Popen[str]) -> None:
    below = descendants_of(building.pid)
    building.send_signal(signal.SIGINT)
    building.send_signal(signal.SIGINT)
    building.communicate(timeout=60)
    assert building.returncode == 8
    wait_until(lambda: ended(below), "the end of what ran")
    stage.finish(up_to_date=1, executed_local=2)


def test_a_client_and_its_server_that_are_killed_at_once_take_the_action_with_them(world: World) -> None:
    """As by the OOM killer: the server's guardian is left."""
    sleep = long_sleep(120)
    world.commands(command("x", f"{sleep} & wait"))
    process = world.start("build", ":x")
    wait_until(lambda: sleeping(sleep), "the action")
    server = fork_server_of(process)
    below = descendants_of(server)
    assert len(below) == 3, "the guardian, the shell and its sleep"
    for pid in (server, process.pid):
        os.kill(pid, signal.SIGSTOP)
    for pid in (server, process.pid):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    wait_until(lambda: ended(below), "the end of the action")
    assert world.verify() == 0


@pytest.mark.slow
def test_a_killed_client_while_it_places_outputs_leaves_no_stale_file(world: World) -> None:
    """Killed at any moment: whatever lies in the output folder, the next build puts it right."""
    world.write("in.txt", "0\n")
    world.commands(
        *(
            command(f"t{index}", "for i in 1 2 3 4 5 6 7 8; do cat $2 > $1$i; done", inputs=["in.txt"], outputs=["d/"])
            for index in range(6)
        )
    )
    for delay in range(1, 7):
        world.write("in.txt", f"{delay}\n")
        process = world.start("build", ":all", "--jobs", "2")
        try:
            process.communicate(timeout=0.15 * delay)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    world.write("in.txt", "end\n")
    assert world.build().code == 0
    for index in range(6):
        folder = world.output(f"t{index}/d")
        assert {path.name: path.read_text() for path in folder.iterdir()} == {str(n): "end\n" for n in range(1, 9)}
        assert {path.name for path in folder.parent.iterdir()} == {"d"}
    assert world.verify() >= 1
