"""Runs programs in separate processes, because they may crash, hang or import anything."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_LOG_CHARACTERS = 500


@dataclass(frozen=True, kw_only=True)
class Child:
    """How a process ended. `first` is the first line of its output, `document` the JSON object in the last line. `log`
    is the last line of standard error.
    """

    exit_code: int = 0
    document: Mapping[str, object] = field(default_factory=dict)
    first: str = ""
    log: str = ""
    timed_out: bool = False

    @property
    def ended(self) -> str:
        """How it ended, for people; "" if it succeeded."""
        if self.timed_out:
            return "does not end"
        if self.exit_code < 0:
            with contextlib.suppress(ValueError):
                return f"is ended by {signal.Signals(-self.exit_code).name}"
            return f"is ended by signal {-self.exit_code}"
        return f"fails: {self.log or f'exit code {self.exit_code}'}" if self.exit_code else ""


def run_python(program: str, *arguments: str, seconds: float) -> Child:
    """Run a program's text with this Python and its search path, without the current directory."""
    return run([sys.executable, "-P", "-X", "faulthandler=0", "-c", program, *arguments], seconds=seconds)


def run(command: Sequence[str], *, seconds: float) -> Child:
    """Run a command in an empty directory. Its process group is killed after `seconds`. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="mlcbuild-doctor-") as folder:
        with (
            (Path(folder) / "out").open("w+b") as out,
            (Path(folder) / "log").open("w+b") as log,
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd=folder, start_new_session=True
            ) as process,
        ):
            timed_out = False
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output = (Path(folder) / "out").read_text(encoding="utf-8", errors="replace")
        errors = (Path(folder) / "log").read_text(encoding="utf-8", errors="replace")
    lines = [line for line in (errors or output).splitlines() if line.strip()]
    return Child(
        exit_code=process.returncode,
        document=_object(output),
        first=output.partition("\n")[0].strip()[:_LOG_CHARACTERS],
        log=lines[-1].strip()[:_LOG_CHARACTERS] if lines else "",
        timed_out=timed_out,
    )


def _object(output: str) -> Mapping[str, object]:
    lines = output.splitlines()
    with contextlib.suppress(ValueError):
        document = json.loads(lines[-1]) if lines else {}
        if isinstance(document, dict):
            return document
    return {}
