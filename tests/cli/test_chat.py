"""A conversation on a terminal and through a pipe, as a person and as a script have it."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.run.chat import Conversation, open_chat
from mlcbuild.cli.run.generation_options import GenerationOptions

pytestmark = pytest.mark.slow

PROGRAM = """\
import os, sys
from pathlib import Path
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.output.errors import report_error
from mlcbuild.cli.output.standard_streams import open_standard_streams
from mlcbuild.cli.run.generation import run_package
from mlcbuild.cli.run.generation_options import parse_generation_options
open_standard_streams()
options = GlobalOptions(environment=os.environ, arguments=())
try:
    code = run_package(Path(sys.argv[1]), parse_generation_options("//:x", sys.argv[2:]), options)
except Exception as error:
    code = report_error(error, options)
sys.stdout.flush()
sys.exit(int(code))
"""


def command(package: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, str(package), "--chat", "--threads", "1", *arguments]


def piped(package: Path, lines: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command(package, *arguments), input=lines.encode(), capture_output=True, check=False)


def test_a_pipe_gets_answers_on_standard_output_and_nothing_else_there(tiny_package: Path) -> None:
    done = piped(tiny_package, "ab\n/undo\n\nab\n", "--max-tokens", "6", "--stats")
    assert done.returncode == 0
    first, second = (line for line in done.stdout.splitlines(keepends=True) if line.endswith(b"\n"))
    assert first == second, "the turn was taken back"
    told = done.stderr.decode().splitlines()
    assert told[1] == "taken back: ab"
    assert re.fullmatch(r"prompt 3 tokens · [\d.]+ tokens/s · then \d tokens · [\d.]+ tokens/s", told[0])
    assert "prompt 3 tokens (2 kept)" in told[2]


def test_an_error_ends_a_pipe_with_its_exit_code(tiny_package: Path) -> None:
    done = piped(tiny_package, "/rest\nab\n")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().startswith('error: no such command: /rest\n  did you mean "/reset"?\n')
    done = piped(tiny_package, "x" * 80)
    assert (done.returncode, done.stdout) == (2, b"")
    assert "the message makes a prompt of 81 tokens, and the context has 64" in done.stderr.decode()
    done = subprocess.run(command(tiny_package), input=b"a\xff\n", capture_output=True, check=False)
    assert done.returncode == 2
    assert "the prompt is not UTF-8: it has byte 0xff after 1 characters" in done.stderr.decode()


class Terminal:
    """A child process on a terminal of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.screen = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def until(self, wanted: str, *, count: int = 1, seconds: float = 60) -> str:
        """What has been shown since the last call, once `wanted` has been shown so often in it."""
        shown = ""
        end = time.monotonic() + seconds
        while shown.count(wanted) < count:
            ready, _, _ = select.select([self._descriptor], [], [], max(0, end - time.monotonic()))
            assert ready, f"{wanted!r} is not in {shown!r}"
            try:
                shown += os.read(self._descriptor, 4096).decode(errors="replace")
            except OSError:  # the other side has closed
                break
        assert shown.count(wanted) >= count, shown
        return shown

    def interrupt_until(self, wanted: str) -> None:
        """Press Ctrl-C again and again until `wanted` is shown, and a space in between: readline waits in `read` where
        the keys that it was woken for are gone, as Ctrl-C makes them, and then sees Ctrl-C at the next key alone. An
        answer may show what looks like a prompt, and be stopped by the first. A busy machine may need seconds for each,
        so the pauses grow."""
        shown, pause, end = "", 1.0, time.monotonic() + 120
        while wanted not in shown:
            assert time.monotonic() < end, f"{wanted!r} is not in {shown!r}"
            for key in ("\x03", " "):
                self.type(key)
                while wanted not in shown and select.select([self._descriptor], [], [], pause)[0]:
                    shown += os.read(self._descriptor, 4096).decode(errors="replace")
                if wanted in shown:
                    break
            pause *= 2


def exit_code(child: int, terminal: Terminal, keys: str = "") -> int:
    """The exit code of the child. `keys` are pressed until it ends: what is typed before readline has prepared the
    terminal is kept as the terminal was then, where Ctrl-D is no key that readline knows."""
    end = time.monotonic() + 120
    while True:
        terminal.type(keys)
        for _ in range(20):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            assert time.monotonic() < end, "the conversation does not end"
            time.sleep(0.1)


@contextmanager
def on_a_terminal(arguments: list[str], home: Path) -> Iterator[tuple[Terminal, int]]:
    environment = {**os.environ, "XDG_STATE_HOME": str(home), "TERM": "xterm", "INPUTRC": "/dev/null"}
    child, descriptor = pty.fork()
    if child == 0:
        os.execve(arguments[0], arguments, environment)
    try:
        yield Terminal(descriptor), child
    finally:
        os.close(descriptor)
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            pass


def test_a_terminal_has_a_history_commands_and_answers_that_can_be_stopped(tiny_package: Path, tmp_path: Path) -> None:
    arguments = command(tiny_package, "--temperature", "5")
    with on_a_terminal(arguments, tmp_path) as (terminal, child):
        assert "/help lists the commands" in terminal.until("> ")
        terminal.type("/rest\n")
        assert 'did you mean "/reset"?' in terminal.until("> ")
        terminal.type('"""one\ntwo"""\n')
        terminal.until("> ")
        terminal.interrupt_until("Ctrl-D or /exit ends")
        terminal.type("/undo\n")
        terminal.until("taken back: one …")
        assert exit_code(child, terminal, "\x15\x04") == 0  # Ctrl-U empties the line: Ctrl-D ends at an empty one
    history = tmp_path / "mlcbuild/chat-history"
    assert "/rest" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
    with on_a_terminal(arguments, tmp_path) as (terminal, child):
        terminal.until("> ")
        terminal.type("\x1b[A")  # up: the last line of the conversation before
        terminal.until("/undo")
        terminal.type("\n/exit\n")
        terminal.until("there is no turn to take back")
        assert exit_code(child, terminal) == 0


class Interrupting(io.StringIO):
    """Ctrl-C comes when the first text is seen."""

    def write(self, text: str) -> int:
        if not self.getvalue():
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)


def test_ctrl_c_stops_an_answer_and_the_conversation_goes_on(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = GenerationOptions(chat=True, temperature=5.0, seed=1, threads=1)
    options = GlobalOptions(environment={}, arguments=())
    conversation = Conversation(open_chat(tiny_package, wanted, options), wanted, options, interactive=True)
    monkeypatch.setattr(sys, "stdout", Interrupting())
    handler = signal.getsignal(signal.SIGINT)
    assert conversation.take("ab")
    assert signal.getsignal(signal.SIGINT) is handler
    assert capsys.readouterr().err == "note: stopped\n"
    conversation.take("/undo")
    assert capsys.readouterr().err == "taken back: ab\n", "what was said is part of the conversation"
    conversation.take("/stats")
    assert re.fullmatch(r"prompt 3 tokens .*\n0 turns · \d+ of 64 tokens in the context\n", capsys.readouterr().err)


def test_ctrl_c_before_an_answer_begins_ends_nothing_but_the_turn(
    tiny_package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = GenerationOptions(chat=True, max_tokens=4, threads=1)
    options = GlobalOptions(environment={}, arguments=())
    conversation = Conversation(open_chat(tiny_package, wanted, options), wanted, options, interactive=True)

    def press(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "encode_chat":
            sys.setprofile(None)
            os.kill(os.getpid(), signal.SIGINT)

    sys.setprofile(press)
    try:
        assert conversation.take("ab")
    finally:
        sys.setprofile(None)
    assert capsys.readouterr().err == "note: stopped before any text: not part of the conversation\n"
    conversation.take("/undo")
    assert capsys.readouterr().err == "there is no turn to take back\n"
