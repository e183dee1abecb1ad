"""`--set`: an attribute for one command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main
from tests.cli.kernel_workspace import enter_kernel_workspace

Capture = pytest.CaptureFixture[str]
OUTPUT = Path("mlcbuild-out/default/model/lib.txt")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = enter_kernel_workspace(tmp_path, monkeypatch)
    (root / "other.txt").write_text("softmax decode another body\n")
    return root


def build(capsys: Capture, *options: str) -> tuple[int, str]:
    """The exit code, and what was said."""
    code = main(["build", "//:model", *options])
    return code, capsys.readouterr().err


def test_it_holds_for_one_build_and_not_for_the_next(workspace: Path, capsys: Capture) -> None:
    assert build(capsys)[0] == 0
    first = (workspace / OUTPUT).read_text()
    assert build(capsys, "--set", "//:model.text=other.txt")[0] == 0
    assert (workspace / OUTPUT).read_text() == "ANOTHER BODY"
    assert build(capsys)[0] == 0
    assert (workspace / OUTPUT).read_text() == first
    assert build(capsys, "--set", "//:model.text=other.txt")[0] == 0
    assert (workspace / OUTPUT).read_text() == "ANOTHER BODY"


def test_a_build_with_it_is_a_no_op_the_second_time(workspace: Path, capsys: Capture) -> None:
    assert build(capsys, "--set", "//:model.level=5")[0] == 0
    assert "5 actions: 5 up to date" in build(capsys, "--set", "//:model.level=5")[1]
    assert "ran" in build(capsys, "--set", "//:model.level=6")[1]


def test_a_dry_run_tells_what_it_would_change(workspace: Path, capsys: Capture) -> None:
    assert build(capsys)[0] == 0
    code = main(["build", "//:model", "--dry-run", "--set", "//:model.level=5"])
    assert code == ExitCode.WOULD_RUN
    assert "would run: parameter target.level: 2 → 5" in capsys.readouterr().out


def test_an_error_in_it_is_told_as_given(workspace: Path, capsys: Capture) -> None:
    code, said = build(capsys, "--set", "//:model.level=high")
    assert code == ExitCode.ANALYSIS_FAILED
    assert said.startswith(
        '--set //:model.level=high: "level" must be an integer, not the string "high", in //:model\n'
    )


def test_commands_that_only_look_know_it(workspace: Path, capsys: Capture) -> None:
    assert build(capsys)[0] == 0
    assert main(["query", "deps(//:model)", "--set", "//:model.text=other.txt"]) == 0
    assert capsys.readouterr().out == "//:model\nother.txt\n"
    assert main(["aquery", "mnemonic(Partition, //:model)", "--set", "//:model.level=5"]) == 0
    assert '{"kind":"llvm","level":5}' in capsys.readouterr().out
    assert main(["explain", "//:model", "--set", "//:model.level=5"]) == 0
    assert "target.level: 2 → 5" in capsys.readouterr().out


def test_affected_compares_both_states_with_it(workspace: Path, capsys: Capture) -> None:
    for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@example.org commit -qm one"):
        subprocess.run(["git", *command.split()], cwd=workspace, check=True)
    (workspace / "model.txt").write_text("changed\n")
    assert main(["affected", "--since", "HEAD", "//:model"]) == 0
    assert capsys.readouterr().out == "//:model\n"
    assert main(["affected", "--since", "HEAD", "//:model", "--set", "//:model.text=other.txt"]) == 0
    assert capsys.readouterr().out == ""
