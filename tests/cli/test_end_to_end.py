"""Whole commands over small workspaces of `command` targets: real actions, workers, stores and outputs."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.main import main
from tests.cli.command_workspace import PIN, enter_command_workspace, report_of
from tests.durations import without_times

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter_command_workspace(tmp_path, monkeypatch)


def test_outputs_are_built_and_their_paths_printed(root: Path, snapshot: Snapshot, capsys: Capture) -> None:
    assert main(["build", ":all", "-j", "1"]) == 0
    out, err = capsys.readouterr()
    assert out == "mlcbuild-out/default/greeting/greeting.txt\nmlcbuild-out/default/program/program\n"
    assert (root / "mlcbuild-out/default/greeting/greeting.txt").read_text() == "hello world\n"
    snapshot("build-first", without_times(err))
    assert (root / ".mlcbuild/logs/greeting/Command.log").read_text() == "greeting world\n"


def test_a_second_build_runs_nothing(root: Path, snapshot: Snapshot, capsys: Capture) -> None:
    main(["build", ":all"])
    capsys.readouterr()
    assert main(["build", ":all"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    snapshot("build-up-to-date", without_times(err))


def test_after_clean_results_come_from_the_disk_cache(root: Path, capsys: Capture) -> None:
    main(["build", ":all"])
    assert main(["clean"]) == 0
    capsys.readouterr()
    assert main(["build", ":all"]) == 0
    assert "2 actions: 2 from disk · " in capsys.readouterr().err
    assert (root / "mlcbuild-out/default/program/program").exists()


def test_an_edit_rebuilds_what_it_changes(root: Path, capsys: Capture) -> None:
    main(["build", ":all"])
    (root / "name.txt").write_text("moon\n")
    assert main(["build", ":all"]) == 0
    assert (root / "mlcbuild-out/default/greeting/greeting.txt").read_text() == "hello moon\n"


def test_a_configuration_has_outputs_of_its_own(root: Path, capsys: Capture) -> None:
    assert main(["build", ":greeting", "--config", "release"]) == 0
    assert capsys.readouterr().out == "mlcbuild-out/release/greeting/greeting.txt\n"
    assert main(["build", ":greeting", "--config", "relaese"]) == 7
    assert 'did you mean "release"?' in capsys.readouterr().err


def test_a_failure_shows_the_end_of_its_log(root: Path, snapshot: Snapshot, capsys: Capture) -> None:
    report = root / "report.json"
    assert main(["build", ":after-broken", "-j", "1", "--build-report", str(report)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    snapshot("build-failure", without_times(err))
    document = report_of(report)
    assert (document["success"], document["exit_code"]) == (False, 1)
    assert not document["targets"]["//:after-broken"]["success"]
    assert "//:broken Command" in document["targets"]["//:after-broken"]["error"]
    actions = document["actions"]
    assert (actions["executed_local"], actions["failed"], actions["skipped"], actions["total"]) == (1, 1, 1, 3)


@pytest.mark.usefixtures("eighty_columns")
def test_equal_targets_are_told_of_their_own_action_and_who_shares_it(
    root: Path, snapshot: Snapshot, capsys: Capture
) -> None:
    report = root / "report.json"
    targets = [f":equal-{number}" for number in (1, 2, 3)]
    assert main(["build", "-j", "1", "--build-report", str(report), *targets]) == 1
    snapshot("build-failure-shared", without_times(capsys.readouterr().err))
    document = report_of(report)
    for label, target in document["targets"].items():
        assert target["error"].startswith(f"{label} Command failed (shared with //:equal-")
        assert target["error"].endswith("ended with exit code 3")
    assert document["actions"]["failed"] == 3
    assert main(["log", "what-ran", "--failed", "--output=json"]) == 0
    (ran,) = json.loads(capsys.readouterr().out)["actions"]
    assert ran["shared_by"] == ["//:equal-2 Command", "//:equal-3 Command"]
    assert main(["show", "//:equal-2 Command", "--build", "1"]) == 0
    shown = capsys.readouterr().out
    assert "//:equal-1 Command, which has the same key" in shown
    assert "│ one" in shown


def test_keep_going_builds_what_can_be_built(root: Path, capsys: Capture) -> None:
    assert main(["build", "-k", "-j", "1", ":after-broken", ":program"]) == 1
    assert capsys.readouterr().out == "mlcbuild-out/default/program/program\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_that_cannot_be_written_is_the_machines_fault(root: Path, capsys: Capture) -> None:
    (root / "cache").mkdir(mode=0o500)
    assert main(["build", ":all", "--disk-cache", "cache"]) == 36
    assert "this may be retried: this machine failed" in capsys.readouterr().err


def test_a_file_where_the_store_is_to_be_is_a_mistake_of_the_command_line(root: Path, capsys: Capture) -> None:
    assert main(["build", ":all", "--disk-cache", "name.txt"]) == 2
    err = capsys.readouterr().err
    assert "name.txt" in err
    assert "may be retried" not in err


def test_whole_logs_on_request(root: Path, capsys: Capture) -> None:
    assert main(["build", ":greeting", "--show-log"]) == 0
    assert "  │ greeting world\n" in capsys.readouterr().err


def test_fetched_files_are_verified(root: Path, capsys: Capture) -> None:
    assert main(["fetch", ":data"]) == 0
    assert capsys.readouterr().out == "mlcbuild-out/default/data/data.bin\n"
    (root.parent / "data.bin").write_bytes(b"other\n")
    assert main(["clean"]) == 0
    assert main(["fetch", ":data"]) == 0, "the disk cache has it"
    assert main(["fetch", ":data", "--disk-cache", str(root.parent / "empty")]) == 48
    err = capsys.readouterr().err
    assert "this may be retried: something outside this machine could not be fetched" in err
    assert PIN in err


def test_a_fetch_without_a_pin_is_no_fault_of_what_lies_outside(root: Path, capsys: Capture) -> None:
    build_file = root / "BUILD.toml"
    build_file.write_text(build_file.read_text().replace(f'sha256 = "{PIN}"\n', ""))
    assert main(["fetch", ":data"]) == 1
    err = capsys.readouterr().err
    assert "data.bin has no pinned sha256" in err
    assert "mlcbuild fetch --update" in err
    assert "retried" not in err
    assert main(["build", ":data"]) == 1


def run_mlcbuild(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mlcbuild.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def test_run_becomes_the_program(root: Path) -> None:
    done = run_mlcbuild("run", ":program", "--", "a b", "--prompt", "--", "c")
    assert (done.stdout, done.returncode) == ("a b --prompt -- c\n", 5)
    again = run_mlcbuild("run", ":program", "--", "x")
    assert (again.stdout, again.stderr) == ("x\n", ""), "nothing to build, nothing to say"


def test_what_cannot_be_run(root: Path, capsys: Capture) -> None:
    assert main(["run", ":sh"]) == 2
    assert capsys.readouterr().err.startswith("error: //:sh cannot be run: its rule is tool\n")
    assert main(["run", ":all"]) == 2
    assert '":all" matches 3 targets, but only one can be run' in capsys.readouterr().err
    assert main(["run", ":greeting"]) == 6
    assert "greeting.txt cannot be run: Permission denied" in capsys.readouterr().err


def start(root: Path, *arguments: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """A build under way: returns once its slow action runs."""
    events = root / "events"
    command = [sys.executable, "-m", "mlcbuild.cli.main", "build", ":slow", "--events", str(events), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, cwd=root, start_new_session=True)
    deadline = time.monotonic() + 30
    while not (events.exists() and '"action_started"' in events.read_text()):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.3)
    return process


def processes_of(session: int) -> list[int]:
    """The processes of a session that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_no_process_and_writes_its_report(root: Path, number: signal.Signals) -> None:
    report = root / "report.json"
    process = start(root, "--build-report", str(report))
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 8
    assert out == b""
    assert err.decode().rstrip().endswith("· interrupted")
    assert b"Traceback" not in err
    document = report_of(report)
    assert (document["success"], document["exit_code"]) == (False, 8)
    assert processes_of(process.pid) == []
    assert {path.name for path in (root / ".mlcbuild/scratch").iterdir()} <= {"bytecode"}


def test_the_workspace_is_not_cleaned_during_a_build(root: Path, capsys: Capture) -> None:
    process = start(root)
    try:
        assert main(["clean"]) == 9
        err = capsys.readouterr().err
        assert f"process {process.pid} is building in this workspace" in err
        assert "this may be retried: another mlcbuild uses this workspace" in err
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_the_display_on_a_terminal(root: Path) -> None:
    main_end, other_end = pty.openpty()
    process = start(root, stderr=other_end)
    os.close(other_end)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    written = b""
    while select.select([main_end], [], [], 20)[0]:
        try:
            written += os.read(main_end, 65536)
        except OSError:
            break
    process.communicate(timeout=30)
    os.close(main_end)
    text = written.decode()
    assert "[0/1]" in text
    assert "s \x1b[0m//:slow Command" in text
    kept = text.rpartition("\x1b[J")[2]
    assert re.fullmatch(r"1 action: .* · interrupted\r\n", kept), repr(kept)


def test_a_build_with_nothing_to_do_imports_nothing_heavy(root: Path) -> None:
    main(["build", ":all"])
    program = (
        "import sys; from mlcbuild.cli.main import main; code = main(['build', ':all'])\n"
        "print(code, [name for name in ('tvm', 'tvm_ffi', 'ray', 'boto3', 'torch', 'numpy', 'rich', 'pydantic',"
        " 'asyncio', 'mlcbuild.execution.local') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"
    assert "2 up to date" in done.stderr


def test_a_closed_reader_changes_nothing_in_the_build(root: Path) -> None:
    program = "import sys; from mlcbuild.cli.main import main; sys.exit(main(sys.argv[1:]))"
    building = subprocess.Popen(
        [sys.executable, "-c", program, "build", ":program", "--build-report", "report.json"],
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert building.stderr is not None
    building.stderr.close()
    assert building.wait() == 0
    report = json.loads((root / "report.json").read_text())
    assert (report["success"], report["exit_code"]) == (True, 0)
