"""The console, driven by build events."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import termios
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mlcbuild.cli.console.action_logs import ActionLogs, log_path
from mlcbuild.cli.console.action_messages import ran_line
from mlcbuild.cli.console.console import Console
from mlcbuild.cli.console.live_display import live_lines
from mlcbuild.cli.console.progress import Progress
from mlcbuild.cli.output.terminal import Style
from mlcbuild.cli.output.text import COLUMNS
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionsAdded,
    ActionStarted,
    ActionStatus,
    BuildEvent,
    BuildFinished,
    BuildStarted,
    Notice,
    TargetFinished,
)

Snapshot = Callable[[str, str], None]


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def started(identifier: str, time: float) -> ActionStarted:
    return ActionStarted(identifier=identifier, mnemonic=identifier.split()[1], executor="local", time=time)


def finished(
    identifier: str,
    status: ActionStatus,
    *,
    start: float = 0.0,
    time: float = 0.0,
    message: str = "",
    log: bytes = b"",
    exit_code: int = 0,
    title: str = "",
    shared_with: str = "",
    shared_by: tuple[str, ...] = (),
) -> ActionFinished:
    return ActionFinished(
        identifier=identifier,
        mnemonic=identifier.split()[1],
        owner=identifier.split()[0],
        status=status,
        start=start,
        time=time,
        message=message,
        log=log,
        exit_code=exit_code,
        worker="local" if start else "",
        executor="local" if status is ActionStatus.EXECUTED_LOCAL else "",
        title=title,
        shared_with=shared_with,
        shared_by=shared_by,
    )


LONG_LOG = b"".join(b"line %d\n" % number for number in range(1, 41)) + b"ld: undefined symbol: f\x1b[31moo\n"
STORY: tuple[BuildEvent, ...] = (
    BuildStarted(invocation="00000000-0000-4000-8000-000000000000", targets=("//models:a",)),
    ActionsAdded(count=5, total=5),
    finished("//models:a ImportConfig", ActionStatus.UP_TO_DATE),
    started("//models:a Export", 0.5),
    started("//models:b Export", 0.6),
    finished("//models:a Export", ActionStatus.EXECUTED_LOCAL, start=0.5, time=4.7, log=b"warning: no tokenizer\n"),
    Notice(message="the remote cache does not answer; building without it", time=4.8),
    ActionsAdded(count=2, total=7, discovered_by="//models:a Partition"),
    finished("//models:b Export", ActionStatus.FAILED, start=0.6, time=5.0, message="", exit_code=3),
    started("//models:a Link", 5.1),
    finished(
        "//models:a Link",
        ActionStatus.FAILED,
        start=5.1,
        time=5.5,
        message="the linker found no symbol foo\nneeded by fused_matmul",
        log=LONG_LOG,
        exit_code=1,
    ),
    finished("//models:a Package", ActionStatus.SKIPPED, message="//models:a Link failed"),
    TargetFinished(label="//models:a", success=False, error="//models:a Link failed", time=5.5),
    TargetFinished(label="//models:c", success=True, outputs=("mlcbuild-out/default/models/c/c.so",), time=5.5),
    BuildFinished(success=False, interrupted=False, wall_seconds=5.5, counts=()),
)


KERNEL = "kernel_05d87762d9837cde1953f77f2d14f30c"
ADD = "CompileKernel add n×2048 prefill+2 (05d87762)"
SHARED: tuple[BuildEvent, ...] = (
    BuildStarted(invocation="00000000-0000-4000-8000-000000000000", targets=("//:a", "//:b", "//:c")),
    ActionsAdded(count=9, total=9),
    finished("//:b Export", ActionStatus.DISK_HIT, shared_with="//:a Export"),
    finished("//:c Export", ActionStatus.DISK_HIT, shared_with="//:a Export"),
    finished("//:a Export", ActionStatus.EXECUTED_LOCAL, start=0.1, time=1.1, shared_by=("//:b Export", "//:c Export")),
    finished(f"//:a CompileKernel {KERNEL}", ActionStatus.EXECUTED_LOCAL, start=1.1, time=1.2, title=f"//:a {ADD}"),
    finished(
        "//:a Lower",
        ActionStatus.FAILED,
        start=2.0,
        time=2.2,
        message="no such pass",
        shared_by=("//:b Lower", "//:c Lower"),
    ),
    finished("//:b Lower", ActionStatus.FAILED, message="no such pass", shared_with="//:a Lower"),
    finished("//:c Lower", ActionStatus.FAILED, message="no such pass", shared_with="//:a Lower"),
    TargetFinished(
        label="//:a",
        success=False,
        error="//:a Lower failed (shared with //:b, //:c)",
        time=2.2,
        blocked_by="//:a Lower",
    ),
    TargetFinished(
        label="//:b",
        success=False,
        error="//:b Lower failed (shared with //:a, //:c)",
        time=2.2,
        blocked_by="//:b Lower",
    ),
    TargetFinished(
        label="//:c",
        success=False,
        error="//:c Lower failed (shared with //:a, //:b)",
        time=2.2,
        blocked_by="//:c Lower",
    ),
)


def plain(
    events: Sequence[BuildEvent],
    directory: Path,
    *,
    style: Style | None = None,
    show_log: bool = False,
    quiet: bool = False,
    verbose: bool = False,
) -> str:
    stream = io.StringIO()
    logs = ActionLogs(directory, shown_as=".mlcbuild/logs")
    console = Console(
        stream,
        style=style or Style(),
        live=False,
        keep_log=logs.keep,
        show_log=show_log,
        quiet=quiet,
        verbose=verbose,
        width=lambda: COLUMNS,
        clock=Clock(),
    )
    for event in events:
        console(event)
    console.close()
    return stream.getvalue()


def test_plain_lines(tmp_path: Path, snapshot: Snapshot) -> None:
    snapshot("console-plain", plain(STORY, tmp_path))


def test_a_verbose_console_has_a_line_for_each_action_that_ran(tmp_path: Path, snapshot: Snapshot) -> None:
    snapshot("console-verbose", plain(STORY, tmp_path, verbose=True))


def test_a_quiet_console_has_failures_and_notes_alone(tmp_path: Path, snapshot: Snapshot) -> None:
    snapshot("console-quiet", plain(STORY, tmp_path, quiet=True))


def test_plain_lines_in_colour(tmp_path: Path, snapshot: Snapshot) -> None:
    snapshot("console-plain-colour", plain(STORY, tmp_path, style=Style(enabled=True), verbose=True))


def test_whole_logs_on_request(tmp_path: Path, snapshot: Snapshot) -> None:
    snapshot("console-show-log", plain(STORY, tmp_path, show_log=True, verbose=True))


def test_shared_actions_and_kernels_have_names_for_people(tmp_path: Path, snapshot: Snapshot) -> None:
    snapshot("console-shared", plain(SHARED, tmp_path, verbose=True))


def test_the_whole_log_lies_where_the_message_says(tmp_path: Path) -> None:
    text = plain(STORY, tmp_path)
    assert "whole log: .mlcbuild/logs/models/a/Link.log (41 lines)" in text
    assert (tmp_path / "models/a/Link.log").read_bytes() == LONG_LOG


def test_log_paths_stay_below_their_directory() -> None:
    assert log_path("//models:llama/3.1 CompileKernel fused_0") == "models/llama/3.1/CompileKernel-fused_0.log"
    for identifier in ("//..:.. X", "//a:b ../../x", "../../etc", "", "//a:b .", "//:x " + "y" * 500):
        parts = log_path(identifier).split("/")
        assert not {"..", ".", ""} & set(parts), identifier
        assert max(map(len, parts)) < 200


def test_a_log_that_cannot_be_written_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file in the way")
    assert "whole log" not in plain(STORY, tmp_path)


def ticking(seconds: int, *, quiet: bool = False) -> list[str]:
    """What a console without a terminal writes while an action runs for so long."""
    stream, clock = io.StringIO(), Clock()
    console = Console(stream, style=Style(), live=False, keep_log=lambda _: "", quiet=quiet, clock=clock)
    console(BuildStarted(invocation="i", targets=()))
    console(ActionsAdded(count=2, total=2))
    console(started("//m:a Export", 1.0))
    for second in range(seconds):
        clock.now = 100.0 + second
        console.tick()
    console.close()
    return stream.getvalue().splitlines()


def test_without_a_terminal_a_summary_line_comes_at_doubling_times() -> None:
    assert ticking(46) == [
        "[0/2] 10.0 s · 1 running · longest //m:a Export 9.0 s",
        "[0/2] 20.0 s · 1 running · longest //m:a Export 19.0 s",
        "[0/2] 40.0 s · 1 running · longest //m:a Export 39.0 s",
    ]


def test_summary_lines_are_at_most_five_minutes_apart() -> None:
    assert [line.split(" · ")[0] for line in ticking(1300)][-4:] == [
        "[0/2] 5 min 20 s",
        "[0/2] 10 min 20 s",
        "[0/2] 15 min 20 s",
        "[0/2] 20 min 20 s",
    ]


def test_a_quiet_console_has_no_summary_lines() -> None:
    assert ticking(1300, quiet=True) == []


def many_targets(targets: int, actions: int) -> list[BuildEvent]:
    """A build in which every action of every target runs, and the last target fails."""
    labels = tuple(f"//models/llama:library-{number:02d}-cuda" for number in range(targets))
    events: list[BuildEvent] = [
        BuildStarted(invocation="i", targets=labels),
        ActionsAdded(count=actions, total=actions),
    ]
    for number in range(actions):
        label = labels[number % targets]
        status = ActionStatus.DISK_HIT if number % 3 == 0 else ActionStatus.EXECUTED_LOCAL
        events.append(finished(f"{label} CompileKernel kernel_{number}", status, start=1.0, time=1.5 + number / 100))
    events.append(finished(f"{labels[-1]} Link", ActionStatus.FAILED, start=1.0, time=2.0, exit_code=1))
    events += [TargetFinished(label=label, success=True) for label in labels[:-1]]
    events.append(TargetFinished(label=labels[-1], success=False, error=f"{labels[-1]} Link failed"))
    return [*events, BuildFinished(success=False, interrupted=False, wall_seconds=5.5, counts=())]


@pytest.mark.parametrize("targets", [1, 27])
def test_254_actions_print_at_most_forty_lines(tmp_path: Path, targets: int) -> None:
    assert len(plain(many_targets(targets, 254), tmp_path).splitlines()) <= 40


def test_the_closing_table_has_a_line_for_each_target(tmp_path: Path, snapshot: Snapshot) -> None:
    snapshot("console-table", plain(many_targets(5, 31), tmp_path))
    snapshot("console-table-long", plain(many_targets(27, 254), tmp_path))


def test_ten_thousand_hits_print_nothing(tmp_path: Path) -> None:
    hits = [finished(f"//m:t{number} X", ActionStatus.UP_TO_DATE) for number in range(10_000)]
    assert plain([STORY[0], ActionsAdded(count=10_000, total=10_000), *hits], tmp_path) == ""


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
