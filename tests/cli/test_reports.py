"""Build report, profile and event log, driven by events."""

from __future__ import annotations

import itertools
import json
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.build.listeners import Listeners
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output.atomic_file import write_atomically
from mlcbuild.cli.reports.build_report import BuildReport
from mlcbuild.cli.reports.event_log import EventLog
from mlcbuild.cli.reports.profile import Phase, Profile
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionStatus,
    BuildEvent,
    Cause,
    TargetFinished,
)
from tests.cli.report_story import INVOCATION, STORY, Snapshot, done


def report_of(events: Sequence[BuildEvent], code: ExitCode) -> dict[str, Any]:
    report = BuildReport(invocation=INVOCATION)
    for event in events:
        report(event)
    return report.document(exit_code=code, wall_seconds=2.0)


def test_build_report(snapshot: Snapshot) -> None:
    snapshot("build-report", json.dumps(report_of(STORY, ExitCode.BUILD_FAILED), indent=2) + "\n")


def test_a_report_of_equal_targets_tells_each_of_its_own_action_and_why_it_failed() -> None:
    def failed(target: str, **more: Any) -> ActionFinished:
        return ActionFinished(
            identifier=f"{target} Compile kernel_9f",
            title=f"{target} Compile add n×8 (9f)",
            mnemonic="Compile",
            owner=target,
            status=ActionStatus.FAILED,
            start=0.0,
            time=0.1,
            message=f"{target} Compile add n×8 (9f) wrote to its input",
            **more,
        )

    errors = {
        "//m:a": "//m:a Compile add n×8 (9f) failed (shared with //m:b)",
        "//m:b": "//m:b Compile add n×8 (9f) failed (shared with //m:a)",
    }
    story: tuple[BuildEvent, ...] = (
        failed("//m:a", shared_by=("//m:b Compile kernel_9f",)),
        failed("//m:b", shared_with="//m:a Compile kernel_9f"),
        *(
            TargetFinished(label=label, success=False, error=error, blocked_by=f"{label} Compile kernel_9f")
            for label, error in errors.items()
        ),
    )
    told = report_of(story, ExitCode.BUILD_FAILED)["targets"]
    assert {label: target["error"] for label, target in told.items()} == {
        label: f"{error}: wrote to its input" for label, error in errors.items()
    }


def test_a_report_without_a_build_is_complete(snapshot: Snapshot) -> None:
    snapshot("build-report-empty", json.dumps(report_of((), ExitCode.ANALYSIS_FAILED), indent=2) + "\n")


def test_a_report_of_a_build_that_broke_off_counts_what_was_seen() -> None:
    actions = report_of(STORY[:-1], ExitCode.INTERNAL)["actions"]
    assert actions == report_of(STORY, ExitCode.BUILD_FAILED)["actions"]
    again = done("Import", ActionStatus.EXECUTED_LOCAL, 0.1, 0.2)  # its result was lost
    assert report_of([*STORY[:-1], again], ExitCode.INTERNAL)["actions"]["total"] == actions["total"]


def profile_of(events: Sequence[BuildEvent]) -> dict[str, Any]:
    profile = Profile(invocation="")
    for event in events:
        profile(event)
    phases = [Phase(name="load", start=0.0, end=0.2), Phase(name="build", start=0.3, end=2.0)]
    return profile.document(phases=phases, build_began=0.3)


def test_profile(snapshot: Snapshot) -> None:
    lines = ",\n".join(json.dumps(record) for record in profile_of(STORY)["traceEvents"])
    snapshot("profile", f"{lines}\n")


def test_slices_of_one_lane_never_overlap() -> None:
    slices = [record for record in profile_of(STORY)["traceEvents"] if record["ph"] == "X"]
    assert len(slices) == 2 + 5
    for one in slices:
        for other in slices:
            if one is not other and (one["pid"], one["tid"]) == (other["pid"], other["tid"]):
                assert one["ts"] + one["dur"] <= other["ts"] or other["ts"] + other["dur"] <= one["ts"]


def test_actions_stand_in_the_trace_when_they_ran_in_the_command() -> None:
    [phase0] = [record for record in profile_of(STORY)["traceEvents"] if record["name"] == "Phase0"]
    assert (phase0["ts"], phase0["dur"]) == (400_000, 1_000_000)
    assert phase0["args"]["key"] == "ab" * 32
    assert phase0["args"]["on critical path"] is True


def test_event_log(tmp_path: Path, snapshot: Snapshot) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path, invocation=INVOCATION, arguments=["build", "//m:a"], began=1_700_000_000.25)
    log.begin()
    for event in STORY:
        log(event)
    log.close(exit_code=ExitCode.BUILD_FAILED, error="//m:a Link failed", wall_seconds=2.0)
    snapshot("events", path.read_text(encoding="utf-8"))
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert records[0]["version"] == 1
    assert records[-1]["exit_code"] == 1


def test_each_event_is_on_disk_as_it_happens(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path, invocation=INVOCATION, arguments=[], began=0.0)
    log.begin()
    for count, event in enumerate(STORY, start=2):
        log(event)
        assert len(path.read_text(encoding="utf-8").splitlines()) == count
    log.close(exit_code=ExitCode.OK, error="", wall_seconds=0)


def test_a_listener_that_fails_is_dropped_and_the_others_go_on() -> None:
    said: list[str] = []
    seen: list[BuildEvent] = []
    listeners = Listeners(dropped=said.append)
    full = OSError(28, "No space left on device")

    def failing(event: BuildEvent) -> None:
        raise full

    listeners.add("the event log", failing)
    listeners.add("the console", seen.append)
    for event in STORY:
        listeners(event)
    assert seen == list(STORY)
    assert said == ["the event log is incomplete: No space left on device"]


def test_a_file_is_replaced_completely_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    path.chmod(0o600)
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")
    assert path.read_text() == "old"
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


def test_a_symbolic_link_keeps_pointing_where_it_did(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real/report.json")
    write_atomically(tmp_path / "link", "x")
    assert (tmp_path / "real/report.json").read_text() == "x"
    assert (tmp_path / "link").is_symlink()


FAR: tuple[BuildEvent, ...] = tuple(
    ActionFinished(
        identifier=f"//m:a {name}",
        mnemonic=name,
        owner="//m:a",
        status=ActionStatus.EXECUTED_RAY if node else ActionStatus.EXECUTED_LOCAL,
        start=0.1,
        time=1.1,
        worker=worker,
        executor="ray" if node else "local",
        node=node,
        queued_seconds=0.05,
        input_seconds=0.2,
        output_seconds=0.3,
        peak_bytes=peak_bytes,
        cause=Cause.CHANGED,
    )
    for name, node, worker, peak_bytes in (
        ("Export", "node-b", "task 17", 1_000_000),
        ("Phase0", "node-a", "task 4", 500_000),
        ("Phase1", "node-a", "task 5", 0),
        ("Link", "", "local", 0),
    )
)


def test_a_profile_has_a_process_a_machine_and_what_runs_spent_their_time_on(snapshot: Snapshot) -> None:
    lines = ",\n".join(json.dumps(record) for record in profile_of(FAR)["traceEvents"])
    snapshot("profile-nodes", f"{lines}\n")


def test_parts_of_a_slice_lie_in_it_and_fill_it() -> None:
    slices = [record for record in profile_of(FAR)["traceEvents"] if record["ph"] == "X" and record["pid"] != 1]
    for whole in (record for record in slices if record["cat"] != "part"):
        lane = (whole["pid"], whole["tid"])
        parts = [record for record in slices if record["cat"] == "part" and (record["pid"], record["tid"]) == lane]
        assert [part["name"] for part in parts] == ["inputs", "run", "outputs"]
        assert parts[0]["ts"] == whole["ts"]
        assert all(one["ts"] + one["dur"] == other["ts"] for one, other in itertools.pairwise(parts))
        assert sum(part["dur"] for part in parts) == whole["dur"]


def test_a_report_adds_up_what_ran() -> None:
    assert report_of(FAR, ExitCode.OK)["ran"] == {
        "run_seconds": 4.0,
        "queued_seconds": 0.2,
        "input_seconds": 0.8,
        "output_seconds": 1.2,
        "peak_bytes": 1_000_000,
        "nodes": {"node-a": 2, "node-b": 1},
    }
