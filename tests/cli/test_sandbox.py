"""Options of local execution: the sandbox, kept directories, warm workers."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlcbuild.cli.main import main
from mlcbuild.execution.sandbox import landlock_version

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("cold_workers")

needs_landlock = pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")
BUILD_FILE = """
[workspace]
name = "example"

[[tool]]
name = "sh"
path = "/bin/sh"

[[command]]
name = "copy"
tool = ":sh"
outputs = ["copy.txt"]
environment = { PATH = "/usr/bin:/bin" }
arguments = ["-c", "cat {root}/notes.txt > $0", "{outputs}"]
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A workspace with a command that reads what it does not declare, and a pool of its own."""
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "notes.txt").write_text("undeclared\n")
    (root / "BUILD.toml").write_text(BUILD_FILE.replace("{root}", str(root)))
    monkeypatch.chdir(root)
    with tempfile.TemporaryDirectory(prefix="run-") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        yield root
        main(["shutdown"])


@needs_landlock
def test_the_message_about_an_undeclared_read_names_the_path(root: Path, capsys: Capture) -> None:
    assert main(["build", "//:copy"]) == 1
    assert f"it was denied access to {root}/notes.txt, which is not a declared input" in capsys.readouterr().err


@pytest.mark.parametrize("by", ["option", "variable", "workspace"])
def test_the_sandbox_can_be_left_out(root: Path, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["build", "//:copy"]
    if by == "option":
        arguments.append("--no-sandbox")
    elif by == "variable":
        monkeypatch.setenv("MLCBUILD_SANDBOX", "0")
    else:
        with (root / "BUILD.toml").open("a") as stream:
            stream.write("\n[execution]\nsandbox = false\n")
    assert main(arguments) == 0
    assert (root / "mlcbuild-out/default/copy/copy.txt").read_text() == "undeclared\n"


def test_a_variable_with_another_value_is_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("MLCBUILD_SANDBOX", "perhaps")
    assert main(["build", "//:copy"]) == 2
    assert 'MLCBUILD_SANDBOX must be 1 or 0, not "perhaps"' in capsys.readouterr().err


@needs_landlock
def test_a_failed_actions_directory_is_kept(root: Path, capsys: Capture) -> None:
    assert main(["build", "//:copy", "--sandbox-debug"]) == 1
    kept = root / ".mlcbuild/failed/copy_Command"
    assert f"its directory was kept: {kept} (run.sh in it runs the action again)" in capsys.readouterr().err
    assert subprocess.run([kept / "run.sh"], check=False).returncode == 0
    assert (kept / "out/copy.txt").read_text() == "undeclared\n"


def test_warm_workers_are_listed_and_ended(root: Path, capsys: Capture) -> None:
    assert main(["build", "//:copy", "--workers=warm", "--no-sandbox"]) == 0
    capsys.readouterr()
    assert main(["info"]) == 0
    assert "\nwarm workers    " in capsys.readouterr().out
    assert main(["shutdown"]) == 0
    assert capsys.readouterr().out == "1 warm worker ended\n"
    assert main(["shutdown"]) == 0
    assert capsys.readouterr().out == "no warm workers\n"
