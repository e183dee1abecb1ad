"""`build --target-pattern-file`."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main

Capture = pytest.CaptureFixture[str]
OUTPUT = "mlcbuild-out/default/package/package.txt\n"


def test_patterns_of_a_file_are_built_with_those_of_the_command_line(workspace: Path, capsys: Capture) -> None:
    (workspace / "targets.txt").write_text("# what changed\n\n  //:package\n-//:model\n")
    assert main(["build", "//:model", "--target-pattern-file", "targets.txt"]) == 0
    assert capsys.readouterr().out == OUTPUT


def test_an_empty_file_builds_nothing_and_is_no_error(workspace: Path, capsys: Capture) -> None:
    (workspace / "targets.txt").write_text("")
    assert main(["build", "--target-pattern-file", "targets.txt"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("note: no targets match\n0 actions")


def test_a_file_that_cannot_be_read_is_an_error(workspace: Path, capsys: Capture) -> None:
    assert main(["build", "--target-pattern-file", "nowhere.txt"]) == ExitCode.COMMAND_LINE
    assert capsys.readouterr().err == "error: --target-pattern-file: nowhere.txt: No such file or directory\n"


def test_the_same_file_is_answered_by_the_no_op_check_until_it_changes(workspace: Path, capsys: Capture) -> None:
    path = workspace / "targets.txt"
    path.write_text("//:package\n")
    for _ in range(2):
        assert main(["build", "--target-pattern-file", "targets.txt"]) == 0
        assert capsys.readouterr().out == OUTPUT
    path.write_text("")
    assert main(["build", "--target-pattern-file", "targets.txt"]) == 0
    assert capsys.readouterr().out == ""
