"""One Bash for all commands of a page: what a command sets, exports or starts is there for the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

COMMAND_SECONDS = 600.0


class Shell:
    """A Bash in `root`. Standard error goes where standard output goes, as on a terminal."""

    def __init__(self, root: Path, *, environment: Mapping[str, str], scripts: Path) -> None:
        self._scripts = scripts
        self._number = 0
        self._code = 0
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=root,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            stream.close()

    def run(self, commands: str, *, stops_at_failures: bool) -> tuple[int, str]:
        """The exit code of the last command, and everything printed. With `stops_at_failures`, the first failure ends
        the commands, and the shell too."""
        self._number += 1
        script = self._scripts / f"{self._number}.sh"
        script.write_text(commands, encoding="utf-8")
        marker = uuid.uuid4().hex
        assert self._process.stdin
        assert self._process.stdout
        # A command that fails with errexit ends this Bash, so it says what it has to say as it goes.
        before, after = ("set -e", "set +e") if stops_at_failures else (":", ":")
        told = f"trap 'printf \"\\n{marker} %s\\n\" $?' EXIT; {before}; (exit {self._code}) || true"
        if not stops_at_failures:
            told += f"; (exit {self._code})"
        line = f"{told}\n. {script} < /dev/null\n_code=$?; {after}; trap - EXIT; printf '\\n{marker} %s\\n' $_code\n"
        timer = threading.Timer(COMMAND_SECONDS, self._kill)
        timer.start()
        printed = []
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
            for shown in self._process.stdout:
                if shown.startswith(marker):
                    self._code = int(shown.split()[1])
                    break
                printed.append(shown)
            else:
                raise AssertionError(f"no answer after {COMMAND_SECONDS:.0f} s: {commands}{''.join(printed)}")
        finally:
            timer.cancel()
        return self._code, "".join(printed)[:-1]

    def _kill(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
