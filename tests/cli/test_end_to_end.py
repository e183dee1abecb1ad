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

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cli.main import main
from tests.durations import without_times

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]

BUILD_FILE = """\
[workspace]
name = "example"

[configuration.release]

[[tool]]
name = "sh"
path = "/bin/sh"

[[command]]
name = "greeting"
tool = ":sh"
inputs = ["name.txt"]
outputs = ["greeting.txt"]
arguments = ["-c", "read name < $0; echo greeting $name; echo hello $name > $1", "{inputs}", "{outputs}"]

[[command]]
name = "program"
tool = ":sh"
inputs = [":greeting"]
outputs = ["program"]
environment = { PATH = "/usr/bin:/bin" }
arguments = ["-c", "(echo '#!/bin/sh'; echo 'echo \\"$@\\"; exit 5') > $0; chmod +x $0", "{outputs}"]

[[command]]
name = "broken"
tool = ":sh"
inputs = [":greeting"]
outputs = ["x"]
arguments = ["-c", "echo one; echo two >&2; exit 3"]
tags = ["manual"]

[[command]]
name = "after-broken"
tool = ":sh"
inputs = [":broken"]
outputs = ["x"]
arguments = ["-c", "true"]
tags = ["manual"]

[[command]]
name = "equal-{number}"
matrix = { number = ["1", "2", "3"] }
tool = ":sh"
outputs = ["x"]
arguments = ["-c", "echo one; exit 3"]
tags = ["manual"]

[[command]]
name = "slow"
tool = ":sh"
outputs = ["x"]
environment = { PATH = "/usr/bin:/bin" }
arguments = ["-c", "echo began; exec sleep 60"]
tags = ["manual"]

[[local_file]]
name = "data"
path = "{data}"
sha256 = "{pin}"
tags = ["manual"]
"""
PIN = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"  # of "hello\\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that one stands in, with a store of its own."""
    (tmp_path / "data.bin").write_bytes(b"hello\n")
    root = tmp_path / "workspace"
    root.mkdir()
    text = BUILD_FILE.replace("{data}", str(tmp_path / "data.bin")).replace("{pin}", PIN)
    (root / "BUILD.toml").write_text(text)
    (root / "name.txt").write_text("world\n")
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root


def report_of(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    assert list(document) == [
        "success",
        "exit_code",
        "wall_seconds",
        "invocation_id",
        "digest_function",
        "targets",
        "needed_targets",
        "actions",
        "skipped",
        "keys",
        "action_results",
        "not_cached",
        "critical_path",
        "ran",
        "bytes",
        "remote",
    ]
    return document


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


def test_reports_are_written_for_a_build_that_never_began(root: Path, capsys: Capture) -> None:
    files = [f"--{name}={root / name}" for name in ("build-report", "profile", "events")]
    assert main(["build", ":nothing", *files]) == 7
    document = report_of(root / "build-report")
    assert (document["success"], document["exit_code"], document["targets"]) == (False, 7, {})
    assert json.loads((root / "profile").read_text())["traceEvents"]
    last = json.loads((root / "events").read_text().splitlines()[-1])
    assert last["exit_code"] == 7
    assert "no target //:nothing" in last["error"]


def test_profile_and_events_of_a_build(root: Path) -> None:
    assert main(["build", ":all", "--profile", "trace.json", "--events", "events.jsonl"]) == 0
    trace = json.loads(Path("trace.json").read_text())
    slices = {record["name"]: record for record in trace["traceEvents"] if record["ph"] == "X"}
    assert {"load", "analyse", "build", "Command"} <= set(slices)
    assert slices["build"]["ts"] <= slices["Command"]["ts"]
    assert slices["Command"]["ts"] + slices["Command"]["dur"] <= slices["build"]["ts"] + slices["build"]["dur"]
    assert len(slices["Command"]["args"]["key"]) == 64
    records = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()]
    names = [record["event"] for record in records]
    assert names[:2] == ["header", "build_started"]
    assert names[-2:] == ["build_finished", "command_finished"]
    assert names.count("action_finished") == 2


def test_all_that_is_written_of_a_build_names_one_invocation(root: Path, capsys: Capture) -> None:
    reports = ["--profile=trace.json", "--events=events.jsonl", "--build-report=report.json"]
    assert main(["build", ":greeting", *reports]) == 0
    header, started, *_ = (json.loads(line) for line in Path("events.jsonl").read_text().splitlines())
    capsys.readouterr()
    assert main(["log", "--output", "json"]) == 0
    assert {
        header["invocation"],
        started["invocation"],
        report_of(root / "report.json")["invocation_id"],
        json.loads(Path("trace.json").read_text())["otherData"]["invocation_id"],
        json.loads(capsys.readouterr().out)[0]["invocation_id"],
    } == {header["invocation"]}


def test_the_report_can_be_the_result(root: Path, capsys: Capture) -> None:
    assert main(["build", ":greeting", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["targets"]["//:greeting"]["outputs"] == ["mlcbuild-out/default/greeting/greeting.txt"]


def test_the_report_has_digests_and_seconds_whether_targets_ran_or_came_from_a_cache(root: Path) -> None:
    report = root / "report.json"

    def build() -> dict[str, Any]:
        assert main(["build", ":program", "--build-report", str(report)]) == 0
        return report_of(report)

    ran, up_to_date = build(), build()
    assert main(["clean"]) == 0
    from_disk = build()
    [path] = ran["targets"]["//:program"]["outputs"]
    placed = str(DigestFunction(ran["digest_function"]).of_file(root / path))
    files = [{"path": path, "digest": placed, "executable": True}]
    for document, counts in ((ran, (1, 0)), (up_to_date, (0, 1)), (from_disk, (0, 1))):
        target, needed = document["targets"]["//:program"], document["needed_targets"]["//:greeting"]
        assert target["output_files"] == files
        assert (target["ran"], target["cached"]) == (needed["ran"], needed["cached"]) == counts
        assert (target["seconds"] > 0) == (needed["seconds"] > 0) == (document is ran)
        results = document["action_results"]
        assert results.keys() == document["keys"].keys()
        assert {entry["digest"] for entry in results["//:program Command"]["output_files"]} == {placed}
        assert sum(each["seconds"] for each in results.values()) == pytest.approx(
            target["seconds"] + needed["seconds"], abs=0.002
        )
        greeting = results["//:greeting Command"]["output_files"]
        assert greeting == ran["action_results"]["//:greeting Command"]["output_files"]
        assert len(greeting) == 1
    assert {each["cause"] for each in ran["action_results"].values()} == {"first build"}
    assert {each["status"] for each in from_disk["action_results"].values()} == {"disk_hit"}


def test_a_failed_target_has_the_seconds_that_it_took_and_no_files(root: Path) -> None:
    report = root / "report.json"
    assert main(["build", ":broken", "--events=events.jsonl", "--build-report", str(report)]) == 1
    document = report_of(report)
    target = document["targets"]["//:broken"]
    assert (target["ran"], target["cached"], target["output_files"]) == (0, 0, [])
    assert target["seconds"] > 0
    assert document["action_results"]["//:broken Command"]["output_files"] == []
    events = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()]
    [told] = [event for event in events if event["event"] == "target_finished"]
    assert told["seconds"] == pytest.approx(target["seconds"], abs=0.001)


def test_a_report_that_cannot_be_written_is_known_before_the_build(root: Path, capsys: Capture) -> None:
    assert main(["build", ":all", "--profile", "no/such/dir/x.json"]) == 2
    assert "--profile: there is no directory no/such/dir" in capsys.readouterr().err
    assert not (root / "mlcbuild-out").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_that_cannot_be_written_is_the_machines_fault(root: Path, capsys: Capture) -> None:
    (root / "cache").mkdir(mode=0o500)
    assert main(["build", ":all", "--disk-cache", "cache"]) == 36
    assert "this may be retried: this machine failed" in capsys.readouterr().err


def test_a_store_in_the_way_of_a_file_is_the_machines_fault(root: Path, capsys: Capture) -> None:
    assert main(["build", ":all", "--disk-cache", "name.txt"]) == 36
    assert "this may be retried: this machine failed" in capsys.readouterr().err


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
    assert capsys.readouterr().err.startswith("error: //:sh cannot be run: it is a tool\n")
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
