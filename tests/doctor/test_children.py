"""A program in a separate process may crash, hang and print anything."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mlcbuild.doctor.children import run, run_python


@pytest.mark.parametrize(
    ("program", "ended"),
    [
        ("print('x')", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "is ended by SIGSEGV"),
        ("raise SystemExit(3)", "fails: exit code 3"),
        ("raise ImportError('no such library')", "fails: ImportError: no such library"),
    ],
)
def test_how_a_program_ended(program: str, ended: str) -> None:
    assert run_python(program, seconds=30).ended == ended


def test_one_that_hangs_is_killed_with_all_that_it_started() -> None:
    program = """
import json, subprocess, sys
child = subprocess.Popen(["sleep", "60"])
print(json.dumps({"child": child.pid}), flush=True)
child.wait()
"""
    began = time.monotonic()
    child = run_python(program, seconds=2)
    assert time.monotonic() - began < 20
    assert (child.timed_out, child.ended) == (True, "does not end")
    process = child.document["child"]
    assert isinstance(process, int)
    end = time.monotonic() + 5
    while _runs(process) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _runs(process)


def _runs(process: int) -> bool:
    """Whether it is there, and no zombie that nobody has asked for yet."""
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False


def test_it_imports_nothing_of_the_directory_one_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blake3.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    assert run_python("import blake3", seconds=30).ended == ""


def test_the_last_line_is_its_document_and_the_first_its_version() -> None:
    child = run(["sh", "-c", 'echo program 1.2; echo more; echo "{\\"a\\": 1}"'], seconds=10)
    assert (child.first, child.document) == ("program 1.2", {"a": 1})
    assert run(["sh", "-c", "echo '[1]'"], seconds=10).document == {}
