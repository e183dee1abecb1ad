"""Crashes, cancellation, lost servers: no process stays, and each end is reported correctly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.engine.executor import OutcomeKind
from mlcbuild.execution import environment
from mlcbuild.execution.fork_client import ForkClient
from mlcbuild.execution.local import LocalExecutor
from mlcbuild.toolchains.table import find
from tests.execution.conftest import tool_in

if TYPE_CHECKING:
    from tests.execution.conftest import World


def servers() -> list[int]:
    """The fork servers that this process has started and that still run."""
    lists = [file.read_text().split() for file in Path("/proc/self/task").glob("*/children")]
    children = [int(pid) for pids in lists for pid in pids]
    return [pid for pid in children if b"fork_server.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_segmentation_fault_is_that_actions_failure_with_its_log(world: World) -> None:
    outcome = world.run(world.stage("segfault"))
    assert outcome.kind is OutcomeKind.FAILED
    assert "//t:x Stage crashed with SIGSEGV" in outcome.message
    assert b"about to crash" in outcome.log
    assert b"sample_stages.py" in outcome.log  # where, by faulthandler


def test_the_next_action_runs_after_a_crash(world: World) -> None:
    world.run(world.stage("segfault"))
    assert world.run(world.tool("/bin/touch", "out.txt")).kind is OutcomeKind.SUCCEEDED
    assert world.run(world.stage("surroundings")).kind is OutcomeKind.SUCCEEDED


def test_an_exit_without_a_result_is_a_failure(world: World) -> None:
    outcome = world.run(world.stage("leave"))
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.FAILED, 7)
    assert "exit code 7" in outcome.message


def test_a_kill_from_outside_is_no_want_of_memory(world: World) -> None:
    outcome = world.run(world.stage("killed"))
    assert outcome.kind is OutcomeKind.ENVIRONMENT
    assert "was killed (SIGKILL), not by the OOM killer" in outcome.message


def test_cancelling_ends_a_stage_and_its_children(world: World) -> None:
    pids = world.directory / "pids"
    world.executor.submit(world.stage("loop", pids=str(pids)))
    running = [int(pid) for pid in world.wait_for(pids).split()]
    world.executor.cancel("//t:x Stage")
    assert world.next().kind is OutcomeKind.CANCELLED
    assert all(world.is_gone(pid) for pid in running)


def test_cancelling_what_waits_reports_it_at_once(world: World) -> None:
    requests = [world.tool("/bin/sleep", "1000", identifier=str(number)) for number in range(3)]
    for request in requests:
        world.executor.submit(request)
    world.executor.cancel("2")
    outcome = world.next()
    assert (outcome.identifier, outcome.kind) == ("2", OutcomeKind.CANCELLED)


def test_closing_reports_everything_as_cancelled_and_leaves_nothing(world: World) -> None:
    pids = world.directory / "pids"
    world.executor.submit(world.stage("loop", identifier="0", pids=str(pids)))
    for number in range(1, 4):
        world.executor.submit(world.tool("/bin/sleep", "1000", identifier=str(number)))
    running = [int(pid) for pid in world.wait_for(pids).split()]
    mine = servers()
    assert mine
    world.executor.close()
    outcomes = [world.next() for _ in range(4)]
    assert {outcome.kind for outcome in outcomes} == {OutcomeKind.CANCELLED}
    assert {outcome.identifier for outcome in outcomes} == {"0", "1", "2", "3"}
    assert all(world.is_gone(pid) for pid in (*running, *mine))


def test_cancelling_does_not_wait_for_a_server_that_is_importing(tmp_path: Path) -> None:
    server = ForkClient(preload=find("numpy")[0].preload, log=tmp_path / "log")
    process = server.launch({})
    process.kill()
    end = process.wait()
    server.close()
    assert (end.status, end.error) == (None, "")
    assert servers() == []


@pytest.mark.parametrize("daemon", [False, True])
def test_children_that_outlive_their_stage_are_killed(world: World, daemon: bool) -> None:
    pids = world.directory / "pids"
    assert world.content(world.run(world.stage("leave_child_behind", pids=str(pids), daemon=daemon))) == "x"
    assert world.is_gone(int(pids.read_text()))


def test_a_daemon_ends_with_its_action_while_another_runs(world: World) -> None:
    started, pids = world.directory / "started", world.directory / "pids"
    long = f"echo $$ > {started}.new; mv {started}.new {started}; sleep 1000"
    world.executor.submit(world.tool("/bin/sh", "-c", long, identifier="long"))
    other = int(world.wait_for(started))
    # Forked twice, in a session of its own, with nothing left of its action's variables.
    daemon = f"(setsid env -i /bin/sh -c 'echo $$ > {pids}; sleep 1000' >/dev/null 2>&1 &)"
    script = f"{daemon}; while [ ! -s {pids} ]; do :; done"
    outcome = world.run(world.tool("/bin/sh", "-c", f"{script}; touch out.txt", identifier="short"))
    assert (outcome.identifier, outcome.kind) == ("short", OutcomeKind.SUCCEEDED)
    assert world.is_gone(int(pids.read_text()))
    assert Path(f"/proc/{other}").exists()


def test_a_killed_server_loses_its_actions_and_is_replaced(world: World) -> None:
    pids = world.directory / "pids"
    world.executor.submit(world.stage("loop", pids=str(pids)))
    running = [int(pid) for pid in world.wait_for(pids).split()]
    for pid in servers():
        os.kill(pid, signal.SIGKILL)
    assert world.next().kind is OutcomeKind.LOST
    assert all(world.is_gone(pid) for pid in running)
    assert world.run(world.stage("surroundings")).kind is OutcomeKind.SUCCEEDED


def test_two_actions_run_at_once(world: World) -> None:
    one, two = str(world.directory / "one"), str(world.directory / "two")
    world.executor.submit(world.stage("meet", identifier="1", here=one, there=two))
    world.executor.submit(world.stage("meet", identifier="2", here=two, there=one))
    assert {world.next().kind for _ in range(2)} == {OutcomeKind.SUCCEEDED}


def test_an_action_that_wants_every_cpu_runs_alone(world: World) -> None:
    times = world.directory / "times"
    script = f"echo begin >> {times}; sleep 0.2; echo end >> {times}; touch out.txt"
    for number in range(2):
        requirements = ExecutionRequirements(cpus=8)
        request = world.tool("/bin/sh", "-c", script, identifier=str(number), requirements=requirements)
        world.executor.submit(request)
    assert {world.next().kind for _ in range(2)} == {OutcomeKind.SUCCEEDED}
    assert times.read_text().split() == ["begin", "end", "begin", "end"]


def test_nothing_is_started_before_it_is_needed(world: World) -> None:
    before = servers()
    assert before == []
    assert not world.scratch.exists()


def test_a_long_log_keeps_its_head_and_tail(world: World) -> None:
    outcome = world.run(world.stage("print_much", lines=50_000))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert len(outcome.log) < (2 << 20) + 100
    assert outcome.log.startswith(b"the first line\n")
    assert outcome.log.endswith(b"the last line\n")
    assert b"bytes left out" in outcome.log


def test_a_server_holds_nothing_of_ours_and_one_thread(tmp_path: Path) -> None:
    server = ForkClient(preload=find("numpy")[0].preload, log=tmp_path / "log")
    hello = server.hello()
    server.close()
    assert hello["modules"] == []
    assert hello["threads"] == 1


def test_a_server_that_cannot_import_says_so(tmp_path: Path) -> None:
    (tmp_path / "broken_library.py").write_text("import no_such_library\n")
    variables = {**environment.of_server(), "PYTHONPATH": str(tmp_path)}
    server = ForkClient(preload=("broken_library",), log=tmp_path / "log", variables=variables)
    end = server.launch({}).wait()
    assert end.status is None
    assert server.start_error() == "ModuleNotFoundError: No module named 'no_such_library'"
    server.close()


def test_a_library_that_is_not_installed_is_left_to_the_stage(tmp_path: Path) -> None:
    server = ForkClient(preload=("json.no_such_module", "no_such_library"), log=tmp_path / "log")
    end = server.launch(tool_in(tmp_path, "/bin/true")).wait()
    assert (end.status, server.start_error()) == (0, "")
    server.close()


@pytest.mark.slow
def test_a_tvm_server_is_warm_clean_and_single_threaded(tmp_path: Path) -> None:
    server = ForkClient(preload=find("tvm")[0].preload, hide=("torch",), log=tmp_path / "log")
    hello = server.hello()
    server.close()
    assert (hello.get("error"), hello["modules"], hello["threads"]) == (None, [], 1)


def test_an_edit_that_keeps_size_and_second_is_seen(world: World, tmp_path: Path) -> None:
    module = tmp_path / "edited.py"
    executor = LocalExecutor(world.store, jobs=1, scratch=world.scratch, module_paths=(tmp_path,))
    executor.start(world.outcomes.put)
    seen = []
    for value in ("1", "2"):
        module.write_text(f"def run(*, out):\n    out.write_text('{value}')\n")
        os.utime(module, (1e9, 1e9))
        executor.submit(world.stage("edited:run"))
        seen.append(world.content(world.next()))
    executor.close()
    assert seen == ["1", "2"]
    assert not list(tmp_path.rglob("__pycache__"))


def test_outcomes_tell_how_long_an_action_waited_and_ran(world: World) -> None:
    for number in range(3):
        world.executor.submit(world.tool("/bin/sh", "-c", "sleep 0.3; touch out.txt", identifier=str(number)))
    outcomes = {outcome.identifier: outcome for outcome in (world.next() for _ in range(3))}
    assert outcomes["2"].queued_seconds >= 0.25
    assert all(outcome.run_seconds >= 0.3 for outcome in outcomes.values())


def test_a_killed_build_leaves_no_process(world: World, tmp_path: Path) -> None:
    program = (
        "import json, sys, time\n"
        "from pathlib import Path\n"
        "from mlcbuild.execution import environment\n"
        "from mlcbuild.execution.fork_client import ForkClient\n"
        "directory = Path(sys.argv[1])\n"
        "server = ForkClient(preload=(), log=directory / 'log')\n"
        "script = 'sleep 1000 & echo $$ $! > pids.new; mv pids.new pids; wait'\n"
        "server.launch({'directory': str(directory), 'environment': environment.FIXED,\n"
        "               'arguments': ['/bin/sh', '-c', script]}).wait()\n"
    )
    client = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    running = [int(pid) for pid in world.wait_for(tmp_path / "pids").split()]
    client.kill()
    client.wait()
    assert all(world.is_gone(pid) for pid in running)
