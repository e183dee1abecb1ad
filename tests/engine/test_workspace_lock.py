"""One build at a time works in a workspace."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mlcbuild.engine.workspace_lock import WorkspaceLock, WorkspaceLockedError


def test_a_second_build_that_will_not_wait_is_told_who_builds(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from mlcbuild.engine.workspace_lock import WorkspaceLock\n"
        "with WorkspaceLock(pathlib.Path(sys.argv[1])):\n"
        "    print('locked', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(WorkspaceLockedError, match=f"process {other.pid}"), WorkspaceLock(tmp_path, block=False):
            pass
        other.kill()  # A killed build leaves no lock behind.
        other.wait()
        with WorkspaceLock(tmp_path, block=False):
            pass


def test_a_full_disk_locks_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with WorkspaceLock(tmp_path), pytest.raises(WorkspaceLockedError, match="another process is building"):
        WorkspaceLock(tmp_path, block=False).__enter__()


def test_a_second_build_waits_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    entered = threading.Event()

    def second() -> None:
        with WorkspaceLock(tmp_path, waits=said.append):
            entered.set()

    with WorkspaceLock(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        assert not entered.wait(0.2)
        assert len(said) == 1
        assert "waiting for process" in said[0]
    thread.join(10)
    assert entered.is_set()
