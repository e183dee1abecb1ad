"""The history of builds as `mlcbuild log` and `mlcbuild info` show it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.log.build_list import build_lines
from mlcbuild.cli.log.records import chosen, numbered, records, unnumbered
from mlcbuild.cli.main import main
from mlcbuild.cli.output.terminal import Style
from mlcbuild.cli.reports.event_log import file_document
from mlcbuild.errors import UsageError
from tests.cli.build_events import BEGAN, OUTPUT, invocation_of
from tests.cli.build_history import history_of, idle, mixed, numbers, write
from tests.cli.copying_workspace import copying_workspace

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    with copying_workspace(tmp_path) as root:
        yield root


def test_info_tells_where_the_history_lies_and_how_large_it_is(workspace: Path, capsys: Capture) -> None:
    directory = history_of(workspace)
    assert main(["info"]) == 0
    assert "\nhistory" not in capsys.readouterr().out
    mixed(directory)
    size = sum(path.stat().st_size for path in directory.iterdir())
    assert main(["info", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["history"] == {"path": str(directory), "builds": 4, "no_ops": 4, "bytes": size}
    assert main(["info"]) == 0
    assert f"{directory} (4 builds, 4 more with nothing to do; " in " ".join(capsys.readouterr().out.split())


def told(capsys: Capture, *arguments: str) -> Any:
    capsys.readouterr()
    assert main(["log", *arguments, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "width", "coloured"), [("wide", 0, False), ("80", 80, False), ("80-colour", 80, True)]
)
def test_the_list_tells_builds_with_nothing_to_do_apart(
    name: str, width: int, coloured: bool, workspace: Path, snapshot: Snapshot
) -> None:
    directory = history_of(workspace)
    mixed(directory)
    builds = numbered(enumerate(records(directory), start=1), unnumbered(directory))
    lines = list(build_lines(builds, style=Style(enabled=coloured), width=width))
    if width and not coloured:
        assert max(map(len, lines)) <= width
    snapshot(f"log-history-{name}", "\n".join(lines) + "\n")


@pytest.mark.parametrize("target", ["//m:a", "//m:all"])
def test_a_target_is_followed_through_builds(target: str, workspace: Path, snapshot: Snapshot, capsys: Capture) -> None:
    mixed(history_of(workspace))
    assert main(["log", "--target", target]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80 or target != "//m:a"
    snapshot(f"log-target-{target[4:]}", out)


def test_the_figures_of_a_target_are_those_of_its_builds(workspace: Path, capsys: Capture) -> None:
    mixed(history_of(workspace))
    builds = told(capsys, "--target", "//m:a")
    assert [(build["build"], build["ran"], build["cached"]) for build in builds] == [(1, 3, 1), (2, 1, 14), (4, 12, 3)]
    assert [build["seconds"] for build in builds] == pytest.approx([15.4, 1.0, 12.0])
    assert builds[1]["of_targets"]["//m:a"]["output_files"] == [file_document(OUTPUT)]
    assert [build["build"] for build in told(capsys, "--target", "//m:a", "--failed")] == [1]
    assert [build["build"] for build in told(capsys, "--target", "//...:b*", "--limit", "2")] == [1, 3]
    assert told(capsys, "--target", "//none") == []


def test_a_list_is_as_long_as_asked(workspace: Path, capsys: Capture) -> None:
    directory = history_of(workspace)
    for number in range(0, 60, 2):
        write(directory, number)
        idle(directory, number + 1)
    assert main(["log"]) == 0
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (40, "note: 10 older builds: --limit 0 lists all\n")
    assert main(["log", "--limit", "3"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["-", "1", "-", "2", "-", "3"]
    assert main(["log", "--limit", "0"]) == 0
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (60, "")
    assert len(told(capsys)) == 60
    assert main(["log", "--failed"]) == 0
    assert capsys.readouterr().out == "no recorded build failed\n"
    write(directory, 70, code=1)
    assert [build["build"] for build in told(capsys, "--failed")] == [1]
    assert main(["log", "--failed", "what-ran"]) == 2
    assert "options of what-ran come after its name" in capsys.readouterr().err
    assert main(["log", "--target", "-//m:a"]) == 2
    assert main(["log", "--target", "//m:a:b"]) in (2, 7)


def test_numbers_count_builds_that_did_something_and_go_beyond_a_hundred(workspace: Path, capsys: Capture) -> None:
    directory = history_of(workspace)
    for number in range(0, 240, 2):
        write(directory, number)
        idle(directory, number + 1)
    for wanted, found in (("1", 238), ("11", 218), ("120", 0)):
        assert numbers([chosen(directory, wanted)]) == [found]
        assert told(capsys, "what-ran", "--build", wanted)["build"]["invocation_id"] == invocation_of(found)
    for wanted in ("0", "121", "9999"):
        with pytest.raises(UsageError, match="the oldest recorded build is 120"):
            chosen(directory, wanted)
    assert chosen(directory, invocation_of(238)[:8]).began == BEGAN + 238
    assert chosen(directory, invocation_of(239)[:8]).is_no_op
    assert told(capsys, "what-ran", "--build", invocation_of(239))["actions"] == []
    assert main(["log", "critical-path", "--build", invocation_of(239)]) == 0
    assert capsys.readouterr().out == "nothing ran\n"


def test_builds_with_nothing_to_do_hide_no_reason(workspace: Path, capsys: Capture) -> None:
    assert main(["build", ":again"]) == 0
    (workspace / "data.txt").write_text("2\n")
    assert main(["build", ":again"]) == 0
    for _ in range(3):
        assert main(["build", ":again", "--output", "json"]) == 0  # each is a whole build
    idle(history_of(workspace), 10**9)
    capsys.readouterr()
    assert main(["explain", ":again"]) == 0
    assert "data.txt" in capsys.readouterr().out
    assert [build["no_op"] for build in told(capsys)] == [True] * 4 + [False] * 2


def test_a_build_that_fails_before_any_action_is_known_is_in_the_history(workspace: Path, capsys: Capture) -> None:
    """It takes no number, so that the last build that ran something stays build 1."""
    assert main(["build", ":copy"]) == 0
    build_file = workspace / "BUILD.toml"
    good = build_file.read_text()
    build_file.write_text(good.replace("[[command]]", "[[comand]]", 1))
    assert main(["build", ":copy"]) == 7
    build_file.write_text(good)
    assert main(["build", ":coppy"]) == 7
    assert main(["build", ":copy", "--events", "nowhere/events.jsonl"]) == 2  # the command line alone is wrong
    unknown, wrong, built = told(capsys)
    assert [each["build"] for each in (unknown, wrong, built)] == [None, None, 1]
    assert [(each["exit_code"], each["no_op"]) for each in (unknown, wrong, built)] == [
        (7, False),
        (7, False),
        (0, False),
    ]
    assert unknown["error"].startswith("no target //:coppy")
    assert 'did you mean ":copy"?' in unknown["error"] or "copy" in unknown["error"]
    assert wrong["error"].startswith("BUILD.toml:")
    assert 'unknown rule "comand"' in wrong["error"]
    assert (unknown["targets"], unknown["arguments"], built["error"]) == ([":coppy"], ["build", ":coppy"], "")
    assert main(["log", "--failed"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == ["-", "-"]
    assert "exit code 7" in listed[0]
    assert ":coppy: no target //:coppy" in listed[0]
    invocation = unknown["invocation_id"][:8]
    assert main(["report", invocation]) == 2
    assert f"build {invocation} failed before any action was known" in capsys.readouterr().err
    assert main(["log", "what-ran", "--build", invocation]) == 0


def test_a_failed_start_is_remembered_where_there_was_no_build_before(workspace: Path, capsys: Capture) -> None:
    assert main(["build", ":nothing"]) == 7
    (failed,) = told(capsys)
    assert failed["error"].startswith("no target //:nothing")
    shutil.rmtree(workspace / ".mlcbuild")
    (workspace / ".mlcbuild").write_text("")  # a history that cannot be written changes no message and no exit code
    capsys.readouterr()
    assert main(["build", ":nothing"]) == 7
    assert capsys.readouterr().err.startswith("error: no target //:nothing")


def test_a_no_op_check_that_settles_a_build_remembers_it_and_loads_nothing_for_it(workspace: Path) -> None:
    program = (
        "import sys, time; from mlcbuild.cli.main import main\n"
        "code = main(['build', ':copy'])\n"
        "heavy = 'mlcbuild.cli.log.records mlcbuild.cli.log.recording mlcbuild.cli.build.session'.split()\n"
        "print(code, [name for name in heavy if name in sys.modules])"
    )

    def build() -> str:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1]

    told = [build()]
    while told[-1] != "0 []" and len(told) < 5:
        time.sleep(2.1)  # A build settles nothing by stats of files that are younger.
        told.append(build())
    assert told[-1] == "0 []"
    [settled, *_] = unnumbered(history_of(workspace))
    assert (settled.targets, settled.counts, settled.arguments) == (("//:copy",), {"up_to_date": 1}, ("build", ":copy"))
    assert len(settled.invocation) == 36
    assert settled.invocation[14] == "4"


def test_five_hundred_builds_are_listed_in_well_under_a_second(workspace: Path) -> None:
    directory = history_of(workspace)
    write(directory, 0, actions=5, cached=50)
    [first] = records(directory)
    assert first.path is not None
    head, _, body = first.path.read_bytes().partition(b"\n")
    for number in range(500):
        summary = {**json.loads(head), "invocation": invocation_of(number), "began": BEGAN + number}
        (directory / f"{number:04}.record").write_bytes(json.dumps(summary).encode() + b"\n" + body)
        idle(directory, number)
    first.path.unlink()
    begin = time.process_time()
    builds = numbered(enumerate(records(directory), start=1), unnumbered(directory))
    assert len(list(build_lines(builds, style=Style()))) >= 500
    assert len([build for _, build in builds if "//m:a" in build.targets]) == 1000
    listed = time.process_time() - begin
    assert sum(build.outcomes["//m:a"].ran for _, build in builds if not build.is_no_op) == 2500
    followed = time.process_time() - begin - listed
    print(f"500 builds: listed in {listed * 1000:.0f} ms, followed in {followed * 1000:.0f} ms of the processor")
    assert listed < 0.5
    assert followed < 1.0
