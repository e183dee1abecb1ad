"""`mlcbuild build --dry-run`: what would run and why, without doing it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main
from tests.cli.kernel_workspace import edit

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


def dry_run(capsys: Capture, *arguments: str) -> tuple[int, str]:
    """The exit code, and what was printed and said."""
    capsys.readouterr()
    code = main(["build", "//:package", "--dry-run", *arguments])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def document(capsys: Capture) -> Any:
    code, printed = dry_run(capsys, "--output=json")
    found = json.loads(printed)
    assert found["exit_code"] == code
    return found


def test_a_first_build_would_run_what_is_known_and_places_nothing(
    workspace: Path, capsys: Capture, snapshot: Snapshot
) -> None:
    before = sorted(workspace.rglob("*"))
    code, printed = dry_run(capsys)
    assert code == ExitCode.WOULD_RUN
    snapshot("dry-run-first", printed)
    assert sorted(path for path in workspace.rglob("*") if "__pycache__" not in str(path)) == before


def test_nothing_would_run_after_a_build(built: Path, capsys: Capture) -> None:
    assert dry_run(capsys) == (ExitCode.OK, "6 actions: 6 up to date\n")


def test_results_of_the_disk_cache_would_be_used_and_are_not_placed(built: Path, capsys: Capture) -> None:
    shutil.rmtree(built / ".mlcbuild")
    shutil.rmtree(built / "mlcbuild-out")
    assert dry_run(capsys) == (ExitCode.OK, "6 actions: 6 cached\n")
    assert not (built / "mlcbuild-out").exists()


@pytest.mark.usefixtures("eighty_columns")
def test_changed_code_would_run_all_kernels_and_what_needs_them_depends_on_them(
    built: Path, capsys: Capture, snapshot: Snapshot
) -> None:
    edit(built / "pipeline/stages/compile_kernel.py", "text.upper()", "text.title()")
    code, printed = dry_run(capsys)
    assert code == ExitCode.WOULD_RUN
    snapshot("dry-run-code", printed)


@pytest.mark.parametrize(
    ("path", "old", "new", "sentence"),
    [
        ("model.txt", "second body", "other body", "would run: model.txt changed"),
        ("BUILD.toml", "level = 2", "level = 3", "would run: parameter target.level: 2 → 3"),
        ("pipeline/stages/lines.py", 'line.split(" ", 2)', "line.split(None, 2)", "would run: code "),
        ("../join.sh", "cat", "/bin/cat", "would run: "),
    ],
)
def test_each_reason_is_told(built: Path, capsys: Capture, path: str, old: str, new: str, sentence: str) -> None:
    edit(built / path, old, new)
    code, printed = dry_run(capsys)
    assert code == ExitCode.WOULD_RUN
    (told,) = [line for line in printed.splitlines() if "would run: " in line and line.startswith("  ")]
    assert sentence in told


def test_json_has_each_action_with_its_target_reason_and_what_it_depends_on(built: Path, capsys: Capture) -> None:
    edit(built / "model.txt", "second body", "other body")
    found = document(capsys)
    assert [(each["target"], each["mnemonic"], each["what"], each["waits_for"]) for each in found["actions"]] == [
        ("//:model", "Partition", "would run", ""),
        ("//:model", "Link", "waits", "//:model Partition"),
        ("//:package", "Command", "waits", "//:model Partition"),
    ]
    assert found["actions"][0]["announces_more"]
    assert found["counts"] == {"total": 3, "up_to_date": 0, "cached": 0, "would_run": 1, "waits": 2, "no_key": 0}


def test_what_a_dry_run_lists_first_is_what_a_build_runs_first(built: Path, capsys: Capture) -> None:
    edit(built / "pipeline/stages/compile_kernel.py", "text.upper()", "text.title()")
    listed = {each["action"] for each in document(capsys)["actions"]}
    assert main(["build", "//:package"]) == 0
    capsys.readouterr()
    assert main(["log", "what-ran", "--output=json"]) == 0
    ran = {each["action"] for each in json.loads(capsys.readouterr().out)["actions"]}
    assert ran == listed


def test_reports_of_a_dry_run_are_an_error(workspace: Path, capsys: Capture) -> None:
    code, said = dry_run(capsys, "--profile", "trace.json")
    assert code == ExitCode.COMMAND_LINE
    assert "--profile" in said
