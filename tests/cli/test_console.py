"""What a build prints where there is no terminal: lines, summaries and the closing table."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from mlcbuild.cli.console.action_logs import log_path
from mlcbuild.cli.console.console import Console
from mlcbuild.cli.main import main
from mlcbuild.cli.output.terminal import Style
from mlcbuild.engine.build_events import (
    ActionsAdded,
    ActionStatus,
    BuildEvent,
    BuildFinished,
    BuildStarted,
    TargetFinished,
)
from tests.cli.build_stories import LONG_LOG, SHARED, STORY, Clock, Snapshot, finished, plain, started


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


def test_what_had_not_begun_at_the_first_failure_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    command = '[[command]]\nname = "{0}"\ntool = ":sh"\narguments = ["-c", "exit 1", "{0}"]\noutputs = ["out"]\n'
    command += "inputs = [{1}]\n"
    targets = ["a", *(f"b{number}" for number in range(9))]
    Path("BUILD.toml").write_text(
        '[workspace]\nname = "w"\n[[tool]]\nname = "sh"\npath = "/bin/sh"\n'
        + "".join(command.format(name, "") for name in targets)
        + "".join(command.format(f"c{number}", '":a"') for number in range(30))
    )
    assert main(["build", "//...", "--jobs", "1"]) == 1
    told = [line for line in capsys.readouterr().err.splitlines() if "not built" in line and "error:" in line]
    assert len(told) == 2, told
    assert told[-1].startswith("error: 9 targets were not built: the build stopped at the first failure, //:a Command")
    assert "error: 31 targets were not built: //:a Command failed" in told
