"""Tools start without a fork of their server, and leave nothing in it, even if they cannot start."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from functools import partial
from pathlib import Path

import pytest

from mlcbuild.execution import environment
from mlcbuild.execution.fork_client import ForkClient
from tests.end_to_end.world import processes_with, wait_until
from tests.execution.conftest import pid_of, tool_in

_SPAWNING = Path(environment.__file__).with_name("spawning.py")


def test_where_there_can_be_no_thread_the_tool_alone_does_not_start() -> None:
    program = (
        "import errno, importlib.util, os, resource, sys\n"
        "spec = importlib.util.spec_from_file_location('spawning', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "if os.getuid() == 0:\n"
        "    os.setgid(65534); os.setuid(65534)\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\n"
        "request = {'arguments': ['/bin/true'], 'directory': '/', 'environment': {}}\n"
        "for more in ({}, {'sandbox': {'network': False}}):\n"
        "    try:\n"
        "        module.spawn({**request, **more}, standard_input=0, log=1, confine=lambda policy: None)\n"
        "    except OSError as error:\n"
        "        print(errno.errorcode[error.errno])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, _SPAWNING], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("EAGAIN\nEAGAIN\n", "")


def test_a_directory_that_has_gone_is_named(server: ForkClient, tmp_path: Path) -> None:
    end = server.launch(tool_in(tmp_path / "gone", "/bin/true")).wait()
    assert (end.status, end.error) == (None, f"{tmp_path}/gone: No such file or directory")


def test_tools_leave_neither_thread_nor_descriptor_in_their_server(server: ForkClient, tmp_path: Path) -> None:
    state = Path(f"/proc/{pid_of(server)}")
    policy = {"read": ["/usr", "/bin", "/lib", "/lib64"], "write": [], "directory": str(tmp_path)}
    seen = []
    for number in range(40):
        program = "/bin/true" if number % 2 else "/no/such/program"
        sandbox = {**policy, "network": False, "gpus": False}
        server.launch({**tool_in(tmp_path, program), "sandbox": sandbox}).wait()
        seen.append([len(list((state / kind).iterdir())) for kind in ("fd", "task")])
    confined = [line for line in (state / "status").read_text().splitlines() if line.startswith(("NoNew", "Seccomp:"))]
    assert max(seen[20:]) <= max(seen[:20])
    assert seen[-1][1] == 1
    assert all(line.endswith("0") for line in confined)


def _nothing_has(variable: str) -> bool:
    return not processes_with(variable)


@pytest.mark.parametrize("moments", [8, pytest.param(400, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("what", ["cancel", "close", "kill the server"])
def test_whenever_it_is_ended_nothing_of_a_tool_is_left(
    what: str, moments: int, server: ForkClient, tmp_path: Path
) -> None:
    """Before, while and after it starts, alone or beside others, in a sandbox or not. Detached processes end too."""
    chance = random.Random(what)
    policy = {"read": ["/usr", "/bin", "/lib", "/lib64"], "write": [], "directory": str(tmp_path), "gpus": False}
    script = "setsid sleep 1000 & (setsid sleep 1000 >/dev/null 2>&1 &); exec sleep 1000"
    for _ in range(moments):
        server.hello()
        name = uuid.uuid4().hex
        request = tool_in(tmp_path, "/bin/sh", "-c", script, WHO=name)
        sandboxes: list[dict[str, object]] = [{}, {"sandbox": {**policy, "network": False}}]
        processes = [server.launch({**request, **chance.choice(sandboxes)}) for _ in range(chance.randint(1, 3))]
        waiting = [threading.Thread(target=process.wait, daemon=True) for process in processes]
        for thread in waiting:
            thread.start()
        time.sleep(chance.choice([0, 0.002, 0.01, 0.03]) * chance.random())
        if what == "cancel":
            for process in processes:
                process.kill()
        elif what == "close":
            server.close()
        else:
            os.kill(pid_of(server), signal.SIGKILL)
        for thread in waiting:
            thread.join(30)
        assert not any(thread.is_alive() for thread in waiting)
        wait_until(partial(_nothing_has, f"WHO={name}"), "the end of all that a tool started")
    server.close()
    assert (tmp_path / "log").read_text() == ""
