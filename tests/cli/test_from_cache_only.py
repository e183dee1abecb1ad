"""`mlcbuild build --from-cache-only`: nothing runs, and what has no cached result is listed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main
from tests.durations import without_times

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]
OUTPUT = Path("mlcbuild-out/default/package/package.txt")


def from_cache(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    """The exit code, what was printed, and what was said."""
    capsys.readouterr()
    code = main(["build", "//:package", "--from-cache-only", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def report_of(capsys: Capture) -> Any:
    code, printed, _ = from_cache(capsys, "--output=json")
    report = json.loads(printed)
    assert report["exit_code"] == code
    return report


def test_a_fully_cached_build_places_its_outputs(built: Path, capsys: Capture) -> None:
    shutil.rmtree(built / "mlcbuild-out")
    shutil.rmtree(built / ".mlcbuild")
    code, printed, _ = from_cache(capsys)
    assert (code, printed) == (ExitCode.OK, f"{OUTPUT}\n")
    assert (built / OUTPUT).exists()


def test_nothing_runs_and_the_first_action_without_a_result_is_listed(
    workspace: Path, capsys: Capture, snapshot: Snapshot
) -> None:
    code, printed, said = from_cache(capsys)
    assert (code, printed) == (ExitCode.WOULD_RUN, "")
    snapshot("from-cache-only", without_times(said))
    assert not (workspace / OUTPUT).exists()


def test_kernels_without_a_result_share_a_line(built: Path, capsys: Capture, snapshot: Snapshot) -> None:
    stage = built / "pipeline" / "stages" / "compile_kernel.py"
    stage.write_text(stage.read_text().replace("text.upper()", "text.title()"))
    code, _, said = from_cache(capsys)
    assert code == ExitCode.WOULD_RUN
    snapshot("from-cache-only-kernels", without_times(said))


def test_the_report_lists_each_action_with_its_target_and_reason(built: Path, capsys: Capture) -> None:
    stage = built / "pipeline" / "stages" / "compile_kernel.py"
    stage.write_text(stage.read_text().replace("text.upper()", "text.title()"))
    report = report_of(capsys)
    assert [(each["target"], each["mnemonic"]) for each in report["not_cached"]] == [("//:model", "CompileKernel")] * 3
    assert {each["reason"] for each in report["not_cached"]} == {"changed since the last build here"}
    assert report["actions"]["not_cached"] == 3
    assert report["actions"]["failed"] == report["actions"]["executed_local"] == 0
    error = report["targets"]["//:package"]["error"]
    assert error.startswith("//:model CompileKernel ")
    assert "failed" not in error


def test_a_result_whose_files_are_gone_is_no_cached_result(built: Path, capsys: Capture) -> None:
    (built / "mlcbuild-out").rename(built / "elsewhere")
    for blob in (built.parent / "cache" / "mlcbuild").rglob("*"):
        if blob.is_file() and blob.read_bytes() == (built / "elsewhere/default/package/package.txt").read_bytes():
            blob.chmod(0o644)
            blob.unlink()
    shutil.rmtree(built / "elsewhere")
    report = report_of(capsys)
    assert report["exit_code"] == ExitCode.WOULD_RUN
    assert [each["reason"] for each in report["not_cached"]] == ["the files of its result are no longer in any cache"]


def test_options_that_run_every_action_are_an_error(workspace: Path, capsys: Capture) -> None:
    for option in ("--recache", "--check-determinism"):
        code, _, said = from_cache(capsys, option)
        assert code == ExitCode.COMMAND_LINE
        assert option in said
