"""The live display of a build: what is drawn, how often, and what stays."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
import threading
import time
from dataclasses import replace

import pytest

from mlcbuild.cli.console.action_messages import ran_line
from mlcbuild.cli.console.console import Console
from mlcbuild.cli.console.live_display import live_lines
from mlcbuild.cli.console.progress import Progress
from mlcbuild.cli.output.terminal import Style
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionsAdded,
    ActionStarted,
    ActionStatus,
    BuildStarted,
)
from tests.cli.build_stories import STORY, Clock, Snapshot, finished, started


def progress_with(running: int, *, failed: int = 0) -> Progress:
    ended = [ActionStatus.FAILED] * failed + [ActionStatus.DISK_HIT] * (12 - failed)
    progress = Progress(total=62, ended={f"//m:ended X {number}": status for number, status in enumerate(ended)})
    for number in range(running):
        progress.apply(started(f"//models:smollm2-135m CompileKernel fused_dequantize_matmul_{number}", number * 0.5))
    return progress


@pytest.mark.parametrize(
    ("name", "running", "width", "height"),
    [("few", 3, 79, 24), ("many", 20, 79, 24), ("narrow", 4, 30, 24), ("low", 3, 79, 5), ("idle", 0, 79, 24)],
)
def test_live_lines(snapshot: Snapshot, name: str, running: int, width: int, height: int) -> None:
    progress = progress_with(running, failed=1 if name == "many" else 0)
    lines = live_lines(progress, now=12.3, width=width, height=height, style=Style())
    assert all(len(line) <= width for line in lines)
    assert len(lines) < height
    snapshot(f"live-{name}", "\n".join(lines) + "\n")


class Screen:
    """The other end of a pseudo-terminal: understands the few codes that we send, and keeps what is visible."""

    def __init__(self, columns: int, rows: int) -> None:
        self.main, self.end = pty.openpty()
        self.resize(columns, rows)
        self.stream = os.fdopen(self.end, "w", encoding="utf-8", closefd=True)
        self.lines: list[str] = [""]
        self.row = self.column = 0
        self.frames = 0
        self.raw = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def resize(self, columns: int, rows: int) -> None:
        self.columns = columns
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> list[str]:
        """What is on the screen once everything has been read."""
        self.stream.close()
        self._reader.join(5)
        assert not self._reader.is_alive()
        os.close(self.main)
        self._play(self.raw)
        return [line.rstrip() for line in self.lines]

    def _read(self) -> None:
        data = b""
        while True:
            try:
                piece = os.read(self.main, 4096)
            except OSError:  # EIO: the other end is closed
                break
            if not piece:
                break
            data += piece
            self.raw = data.decode("utf-8", "ignore")

    def _play(self, text: str) -> None:
        index = 0
        while index < len(text):
            character = text[index]
            index += 1
            if character == "\r":
                self.column = 0
            elif character == "\n":
                self.row += 1
                while len(self.lines) <= self.row:
                    self.lines.append("")
            elif character == "\x1b":
                end = index + 1
                while not text[end].isalpha():
                    end += 1
                self._code(text[index + 1 : end], text[end])
                index = end + 1
            else:
                if self.column == self.columns:
                    self.column = 0
                    self.row += 1
                    self.lines.insert(self.row, "")
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
                self.column += 1

    def _code(self, argument: str, letter: str) -> None:
        if letter == "A":
            self.row -= int(argument or 1)
            assert self.row >= 0
        elif letter == "K":
            self.lines[self.row] = self.lines[self.row][: self.column]
        elif letter == "J":
            del self.lines[self.row + 1 :]
            self.lines[self.row] = self.lines[self.row][: self.column]
            self.frames += 1
        else:
            assert letter == "m", f"an unknown code ESC[{argument}{letter}"


def live_console(screen: Screen, clock: Clock) -> Console:
    return Console(screen.stream, style=Style(), live=True, keep_log=lambda _: "", clock=clock)


def test_the_live_display_leaves_only_what_stays() -> None:
    screen, clock = Screen(60, 20), Clock()
    console = live_console(screen, clock)
    for event in STORY[:-1]:
        clock.now += 0.1
        console(event)
        console.tick()
    console(STORY[-1])
    console.close()
    shown = screen.close()
    assert shown[0] == "note: the remote cache does not answer; building without it"
    assert shown[1] == "[3/7] //models:b Export failed after 4.4 s: exit code 3"
    assert shown[2].startswith("[4/7] //models:a Link failed after 0.4 s")
    assert shown[-2:] == ["error: //models:a was not built: //models:a Link failed", ""]
    assert not any("running" in line for line in shown)


def test_the_live_display_is_drawn_in_place() -> None:
    screen, clock = Screen(60, 20), Clock()
    console = live_console(screen, clock)
    console(BuildStarted(invocation="i", targets=()))
    console(ActionsAdded(count=3, total=3))
    console(started("//m:a Export", 0.0))
    console(started("//m:b Export", 0.0))
    for _ in range(5):
        clock.now += 1
        console.tick()
    console._stopped.set()
    shown = screen.close()
    assert shown == ["[0/3] 2 running · 5.0 s", "    5.0s //m:a Export", "    5.0s //m:b Export"]


def test_a_window_made_narrower_leaves_no_remains() -> None:
    screen, clock = Screen(80, 20), Clock()
    console = live_console(screen, clock)
    console(BuildStarted(invocation="i", targets=()))
    console(ActionsAdded(count=3, total=3))
    console(started("//models:a-name-that-is-rather-long-for-a-window CompileKernel", 0.0))
    console.tick()
    drawn = len("    0.0s //models:a-name-that-is-rather-long-for-a-window CompileKernel")
    screen.resize(30, 20)
    console.tick()
    console._stopped.set()
    screen.stream.flush()
    time.sleep(0.05)
    rows = -(-drawn // 30)
    assert f"\x1b[{rows}A" in screen.raw  # the status line, and the rows into which the second line was wrapped
    last = screen.raw.rpartition("\r")[2]
    assert max(len(line) for line in last.replace("\x1b[K", "").replace("\x1b[J", "").split("\n")) < 30
    screen.close()


def test_the_display_is_drawn_ten_times_a_second_at_most() -> None:
    screen = Screen(60, 20)
    console = Console(screen.stream, style=Style(), live=True, keep_log=lambda _: "")
    console(BuildStarted(invocation="i", targets=()))
    began = time.monotonic()
    number = 0
    while time.monotonic() - began < 0.5:
        console(ActionsAdded(count=1, total=number))
        console(started(f"//m:t{number} X", 0.0))
        console(finished(f"//m:t{number} X", ActionStatus.EXECUTED_LOCAL, time=0.1))
        number += 1
    console.close()
    elapsed = time.monotonic() - began
    screen.close()
    assert 1 <= screen.frames <= elapsed * 10 + 2


def test_the_status_line_says_where_actions_run_once_there_are_several_places() -> None:
    progress = Progress()
    progress.apply(ActionsAdded(count=9, total=9))
    for number in range(3):
        progress.apply(ActionStarted(identifier=f"//m:a {number}", mnemonic="A", executor="local", time=0.0))
    assert live_lines(progress, now=1.0, width=80, height=3, style=Style())[0].startswith("[0/9] 3 running · ")
    for number in range(3, 8):
        progress.apply(ActionStarted(identifier=f"//m:a {number}", mnemonic="A", executor="ray", time=0.0))
    assert progress.places == "3 local, 5 ray"
    for number, node in ((3, "node-a"), (4, "node-b")):
        progress.apply(
            ActionFinished(
                identifier=f"//m:a {number}",
                mnemonic="A",
                owner="//m:a",
                status=ActionStatus.EXECUTED_RAY,
                start=0.0,
                time=1.0,
                executor="ray",
                node=node,
            )
        )
    assert live_lines(progress, now=1.0, width=80, height=24, style=Style())[0] == (
        "[2/9] 3 local, 3 on 2 nodes of ray · 1.0 s"
    )


def test_what_ran_elsewhere_says_where() -> None:
    event = replace(finished("//m:a Link", ActionStatus.EXECUTED_RAY, time=1.0), node="node-2")
    assert ran_line(event, counter="[1/1]", style=Style()).endswith(" s on node-2")


def test_an_action_that_runs_again_is_one_action() -> None:
    progress = Progress()
    progress.apply(ActionsAdded(count=2, total=2))
    for status in (ActionStatus.EXECUTED_LOCAL, ActionStatus.FAILED, ActionStatus.EXECUTED_LOCAL):
        progress.apply(started("//m:a X", 0.0))
        assert progress.counter == "[0/2]"
        progress.apply(finished("//m:a X", status))
        assert (progress.counter, progress.failed) == ("[1/2]", status is ActionStatus.FAILED)
    progress.apply(finished("//m:b X", ActionStatus.DISK_HIT))
    progress.apply(finished("//m:b X", ActionStatus.EXECUTED_RAY))  # its blobs had gone
    assert progress.counter == "[2/2]"
