"""What is written of a whole build for programs: its report, profile and events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cli.main import main
from tests.cli.command_workspace import enter_command_workspace, report_of

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter_command_workspace(tmp_path, monkeypatch)


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
