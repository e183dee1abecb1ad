"""What a fork server's actions left running is killed, even if the server can no longer do it."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlcbuild.execution import environment
from mlcbuild.execution.fork_client import ForkClient
from tests.end_to_end.world import children_of, wait_until
from tests.execution.conftest import pid_of, tool_in

if TYPE_CHECKING:
    from tests.execution.conftest import World

_GUARDIAN = Path(environment.__file__).with_name("guardian.py")
_EXIT_OF_A_THREAD = {"x86_64": 60, "aarch64": 93}  # exit(2), which libraries call for none but the last


def stat_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text()


@pytest.mark.parametrize("with_guardian", [False, True])
def test_a_server_and_client_that_are_killed_at_once_leave_nothing_of_a_tool(
    with_guardian: bool, world: World, tmp_path: Path
) -> None:
    """Not even a process that detached itself. If the guardian was killed before, another one replaced it."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from mlcbuild.execution import environment\n"
        "from mlcbuild.execution.fork_client import ForkClient\n"
        "directory = Path(sys.argv[1])\n"
        "server = ForkClient(preload=(), log=directory / 'log')\n"
        "print(server.hello()['ready'], flush=True)\n"
        "sys.stdin.readline()\n"
        "script = 'setsid sleep 1000 & echo $$ $! > pids.new; mv pids.new pids; wait'\n"
        "server.launch({'directory': str(directory), 'environment': environment.FIXED,\n"
        "               'arguments': ['/bin/sh', '-c', script]}).wait()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdin is not None
    assert client.stdout is not None
    try:
        with client.stdin, client.stdout:
            server = int(client.stdout.readline())
            (guardian,) = children_of(server)
            if not with_guardian:
                os.kill(guardian, signal.SIGKILL)
                wait_until(lambda: children_of(server) not in ([], [guardian]), "another guardian")
            client.stdin.write("\n")
            client.stdin.flush()
            running = [int(pid) for pid in world.wait_for(tmp_path / "pids").split()]
            guardians = set(children_of(server)) - set(running)
            os.kill(server, signal.SIGSTOP)  # so that it cannot do it itself
            client.kill()
            client.wait()
            os.kill(server, signal.SIGKILL)
    finally:
        client.kill()
        client.wait()
    assert all(world.is_gone(pid) for pid in (*running, *guardians))


def test_a_build_that_ends_leaves_no_guardian(server: ForkClient, world: World) -> None:
    (guardian,) = children_of(pid_of(server))
    server.close()
    assert world.is_gone(guardian)


def test_a_server_that_ends_kills_what_a_running_tool_has_detached(
    server: ForkClient, tmp_path: Path, world: World
) -> None:
    script = "setsid sleep 1000 & echo $$ $! > pids.new; mv pids.new pids; wait"
    process = server.launch(tool_in(tmp_path, "/bin/sh", "-c", script))
    running = [int(pid) for pid in world.wait_for(tmp_path / "pids").split()]
    pid = pid_of(server)
    server.close()
    assert process.wait().status is None
    assert all(world.is_gone(one) for one in (pid, *running))


def test_a_server_whose_guardian_was_stopped_ends_at_once(server: ForkClient, world: World) -> None:
    (guardian,) = children_of(pid_of(server))
    os.kill(guardian, signal.SIGSTOP)
    began = time.monotonic()
    server.close()
    assert time.monotonic() - began < 5
    assert world.is_gone(guardian)


def test_a_guardian_does_not_end_with_a_signal_that_is_meant_for_its_server(
    server: ForkClient, tmp_path: Path, world: World
) -> None:
    pid = pid_of(server)
    (guardian,) = children_of(pid)
    process = server.launch(
        tool_in(tmp_path, "/bin/sh", "-c", "setsid sleep 1000 & echo $! > pids.new; mv pids.new pids; wait")
    )
    detached = int(world.wait_for(tmp_path / "pids"))
    os.kill(guardian, signal.SIGTERM)
    os.kill(pid, signal.SIGSTOP)  # so that it cannot do it itself
    os.kill(pid, signal.SIGKILL)
    process.wait()
    assert world.is_gone(detached)
    assert world.is_gone(guardian)


@pytest.mark.skipif(platform.machine() not in _EXIT_OF_A_THREAD, reason="the number of exit(2) is not known here")
def test_a_guardian_kills_what_runs_on_after_its_first_thread(server: ForkClient, tmp_path: Path, world: World) -> None:
    """Such a process looks like a zombie."""
    program = (
        "import ctypes, os, threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "open('pids.new', 'w').write(str(os.getpid())); os.rename('pids.new', 'pids')\n"
        f"ctypes.CDLL(None).syscall({_EXIT_OF_A_THREAD.get(platform.machine())}, 0)\n"
    )
    process = server.launch(tool_in(tmp_path, "/bin/sh", "-c", 'setsid "$0" -c "$1" & wait', sys.executable, program))
    pid = int(world.wait_for(tmp_path / "pids"))
    wait_until(lambda: f"{pid} (python" in stat_of(pid) and ") Z " in stat_of(pid), "the end of its first thread")
    os.kill(pid_of(server), signal.SIGKILL)
    process.wait()
    wait_until(lambda: len(list(Path(f"/proc/{pid}/task").glob("*"))) <= 1, "the end of the other one")


def test_marks_below_those_of_another_server_are_marks() -> None:
    """A process without privileges cannot raise an inherited limit; and no server kills the guardian of another."""
    program = (
        "import importlib.util, os, resource, sys, time\n"
        "spec = importlib.util.spec_from_file_location('guardian', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "inherited = 1 << 60\n"
        "resource.setrlimit(resource.RLIMIT_RTTIME, (inherited, inherited))\n"
        "guardian = module.Guardian()\n"
        "guardian.marks.lower()\n"
        "mark = resource.getrlimit(resource.RLIMIT_RTTIME)[1]\n"
        "assert mark < inherited and mark == guardian.marks.of(os.getpid()), mark\n"
        "while resource.prlimit(guardian.pid, resource.RLIMIT_RTTIME)[1] == inherited: time.sleep(0.01)\n"
        "assert guardian.marks.of(guardian.pid) == 0\n"
        "guardian.dismiss()\n"
        "os.waitpid(guardian.pid, 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, _GUARDIAN], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
