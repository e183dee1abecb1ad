"""Checks of a workspace: its folders, its lock, tracebacks of crashes."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.doctor import workspace
from mlcbuild.doctor.finding import FindingCause, Verdict
from mlcbuild.engine.workspace_lock import WorkspaceLock
from mlcbuild.errors import Location, WorkspaceError


def test_a_build_that_holds_the_lock_is_named(tmp_path: Path) -> None:
    assert workspace.lock(tmp_path / "lock").measured == "free: no build has run here yet"
    with WorkspaceLock(tmp_path):
        import os

        finding = workspace.lock(tmp_path / "lock")
        assert finding.verdict is Verdict.OK
        assert finding.measured == f"held by process {os.getpid()}, which is building here"
    assert workspace.lock(tmp_path / "lock").measured == "free"


def test_what_a_dead_build_left_in_the_lock_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("12345\n")
    assert workspace.lock(tmp_path / "lock").measured == "free"
    with WorkspaceLock(tmp_path, block=False):
        pass


def test_tracebacks_of_crashes_are_reported(tmp_path: Path) -> None:
    assert workspace.crashes(tmp_path).verdict is Verdict.OK
    for name in ("crash-20260101-000000-1.txt", "crash-20260202-000000-2.txt"):
        (tmp_path / name).write_text("x")
    finding = workspace.crashes(tmp_path)
    assert finding.verdict is Verdict.WARNING
    assert finding.measured == "2 times mlcbuild itself failed here; the last traceback is crash-20260202-000000-2.txt"


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / ".mlcbuild").write_text("x")
    assert workspace.writable(tmp_path / ".mlcbuild", tmp_path).measured == ".mlcbuild is not a folder"


def test_errors_in_targets_have_their_files_as_cause() -> None:
    def count() -> int:
        raise WorkspaceError("no such rule", location=Location(path="a/BUILD.toml", line=2))

    finding = workspace.targets(count)
    assert (finding.measured, finding.cause) == ("a/BUILD.toml:2: no such rule", FindingCause.TARGETS)
    assert workspace.targets(lambda: 1).measured == "1 target, no errors"
