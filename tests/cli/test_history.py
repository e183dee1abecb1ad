"""The history of builds: what is kept, whatever happens to its files, to their writers and to the machine."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlcbuild.cli.arguments.options import RECORD_DIRECTORY
from mlcbuild.cli.log import no_op_builds
from mlcbuild.cli.log.build_list import build_lines
from mlcbuild.cli.log.no_op_builds import NO_OP_FILE
from mlcbuild.cli.log.recording import write_record
from mlcbuild.cli.log.records import numbered, records, unnumbered
from mlcbuild.cli.main import main
from mlcbuild.cli.output.terminal import Style
from mlcbuild.cli.reports.event_log import file_document
from mlcbuild.cli.settings.history import HistoryLimits
from mlcbuild.engine.build_events import BuildStarted
from tests.cli.build_events import BEGAN, OUTPUT, invocation_of, plain_build
from tests.cli.build_history import LIMITS, history_of, idle, numbers, numbers_of_files, write
from tests.cli.copying_workspace import copying_workspace

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    with copying_workspace(tmp_path) as root:
        yield root


def test_a_record_has_all_that_was_told_of_the_build(tmp_path: Path) -> None:
    write(tmp_path, 7, cached=2)
    [build] = records(tmp_path)
    assert (build.targets, build.exit_code, build.wall_seconds, build.jobs) == (("//m:a",), 0, 4.0, 2)
    assert build.counts == {"executed_local": 3, "up_to_date": 2}
    assert [step["identifier"] for step in build.critical_path] == ["//m:a Compile 0"]
    assert build.slacks == {"//m:a Compile 1": 2.0, "//m:a Compile 2": 2.0}
    target = build.outcomes["//m:a"]
    assert (target.outcome, target.ran, target.cached, target.seconds) == ("built", 3, 2, 3.0)
    assert target.output_files == (file_document(OUTPUT),)
    actions = list(build.actions())
    assert [action["identifier"] for action in actions] == [f"//m:a Compile {index}" for index in range(5)]
    assert actions[0]["output_files"] == [file_document(OUTPUT)]
    assert actions[0]["seconds"] == 1.0
    assert build.digest_function == "blake3"


def test_a_build_of_many_targets_knows_them_all(tmp_path: Path) -> None:
    labels = tuple(f"//m:t{number}" for number in range(100))
    events = [BuildStarted(invocation=invocation_of(1), targets=labels), *plain_build(1)[1:]]
    write_record(tmp_path, events, began=BEGAN, arguments=[], exit_code=0, limits=LIMITS)
    [build] = records(tmp_path)
    assert len(build.first_targets) < len(labels)
    assert build.targets == labels


def test_a_large_build_has_a_small_record(tmp_path: Path) -> None:
    write(tmp_path, 1, actions=10, cached=9990)
    [build] = records(tmp_path)
    assert build.path is not None
    assert build.path.stat().st_size < 400_000  # keys that are counted up; real ones take 32 bytes each
    assert sum(1 for _ in build.actions()) == 10_000


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["build", "idle", "cut", "garble", "remove", "replace"]), st.integers(0, 10_000)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, most=st.integers(1, 8))
@example(steps=[("build", 3), ("garble", 5084)], most=1)  # which changes the invocation in the summary
def test_whatever_happens_to_files_the_others_are_read_in_order(steps: list[Step], most: int) -> None:
    """A model beside the store: which builds must still be there, and which may have been damaged."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / RECORD_DIRECTORY
        kept: list[int] = []  # newest first
        damaged: set[int] = set()
        idle_kept: list[int] = []
        limits = HistoryLimits(builds=most)
        for number, (what, choice) in enumerate(steps):
            files = sorted(directory.glob("*.record"), reverse=True) if directory.exists() else []
            match what:
                case "build":
                    write(directory, number, limits=limits, actions=choice % 4 + 1)
                    kept = [number, *kept][:most]
                case "idle":
                    if directory.exists():
                        idle_kept.insert(0, number)
                    idle(directory, number)
                case _ if files:
                    index = choice % len(files)
                    damage(files[index], what, choice)
                    if what == "remove":
                        del kept[index]
                    else:
                        damaged.add(kept[index])
            read = records(directory)
            assert [each for each in numbers_of_files(read) if each not in damaged] == [
                n for n in kept if n not in damaged
            ]
            assert set(numbers_of_files(read)) <= set(kept)
            for number_of_file, build in zip(numbers_of_files(read), read, strict=True):
                told = list(build.actions())
                if number_of_file not in damaged:
                    assert len(told) == build.counts["executed_local"]
                    assert build.outcomes["//m:a"].ran == len(told)
            assert numbers(unnumbered(directory)) == idle_kept
            together = numbered(enumerate(read, start=1), unnumbered(directory))
            assert [build.began for _, build in together] == sorted((b.began for _, b in together), reverse=True)
            assert [n for n, build in together if not build.is_no_op] == list(range(1, len(read) + 1))
            assert len(list(directory.glob("*.record"))) <= most if directory.exists() else True
            assert all(build_lines(together, style=Style()))


def damage(path: Path, what: str, choice: int) -> None:
    if not path.is_file():  # a pipe, where writing would wait for a reader
        path.unlink()
        path.touch()
    content = path.read_bytes()
    match what:
        case "cut":
            path.write_bytes(content[: choice % (len(content) + 1)])
        case "garble" if content:
            place = choice % len(content)
            path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        case "replace":
            path.unlink()
            os.mkfifo(path)
        case "remove":
            path.unlink()


def test_a_record_that_was_cut_anywhere_gives_what_is_left_of_it(tmp_path: Path) -> None:
    write(tmp_path, 1, actions=40)
    [whole] = records(tmp_path)
    assert whole.path is not None
    content, actions = whole.path.read_bytes(), list(whole.actions())
    path, outcomes = whole.critical_path, whole.outcomes
    head = content.index(b"\n")
    for size in range(0, len(content), 3):
        whole.path.write_bytes(content[:size])
        read = records(tmp_path)
        assert len(read) == (size >= head)
        for build in read:
            left = list(build.actions())
            assert left == actions[: len(left)]
            assert build.critical_path in ((), path)
            assert build.outcomes in ({}, outcomes)


def test_a_line_of_a_no_op_that_was_cut_anywhere_spoils_no_other(tmp_path: Path) -> None:
    idle(tmp_path, 1)
    idle(tmp_path, 2)
    path = tmp_path / NO_OP_FILE
    content = path.read_bytes()
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        left = numbers(unnumbered(tmp_path))
        assert left in ([2, 1], [1], [])
        idle(tmp_path, 3)
        assert numbers(unnumbered(tmp_path)) == [3, *left]


def test_a_file_size_limit_while_it_is_written_costs_a_line_and_nothing_else(tmp_path: Path) -> None:
    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
        idle(tmp_path, 1)
        idle(tmp_path, 2)  # only a part of it fits
        try:
            write(tmp_path, 3, actions=50)
        except OSError:
            os._exit(0)
        os._exit(1)

    process = FORK.Process(target=limited)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert (tmp_path / NO_OP_FILE).stat().st_size == 300
    idle(tmp_path, 4)
    assert numbers(unnumbered(tmp_path)) == [4, 1]
    assert [path.name for path in tmp_path.iterdir()] == [NO_OP_FILE]


@pytest.mark.parametrize("place", ["a file", "a pipe", "no permission"])
def test_a_history_that_cannot_be_written_fails_no_build(place: str, workspace: Path, capsys: Capture) -> None:
    directory = history_of(workspace)
    directory.parent.mkdir()
    match place:
        case "a file":
            directory.write_text("in the way")
        case "a pipe":
            directory.mkdir()
            os.mkfifo(directory / NO_OP_FILE)
        case _:
            directory.symlink_to("/proc/self")
    for _ in range(2):
        assert main(["build", ":copy"]) == 0
    assert main(["log"]) == 0
    assert "Traceback" not in capsys.readouterr().err


# Limits.


def test_the_oldest_records_make_room_for_new_ones(tmp_path: Path) -> None:
    for number in range(20):
        write(tmp_path, number, actions=20)
    size = max(path.stat().st_size for path in tmp_path.iterdir())
    write(tmp_path, 20, actions=20, limits=HistoryLimits(bytes=size * 5 + 10))
    assert numbers(records(tmp_path)) == [20, 19, 18, 17, 16]
    write(tmp_path, 21, actions=20, limits=HistoryLimits(bytes=1))
    assert numbers(records(tmp_path)) == [21]


def test_without_a_history_nothing_is_written_and_the_old_one_goes(tmp_path: Path) -> None:
    directory = tmp_path / RECORD_DIRECTORY
    write(directory, 1)
    idle(directory, 2)
    write(directory, 3, limits=HistoryLimits(builds=0))
    assert not directory.exists()
    idle(directory, 4)
    assert not directory.exists()


def test_what_killed_writers_left_is_removed_after_a_while(tmp_path: Path) -> None:
    old, young = tmp_path / "a.1-2.tmp", tmp_path / "b.3-4.tmp"
    for path in (old, young):
        path.write_text("half")
    os.utime(old, (time.time() - 7200,) * 2)
    write(tmp_path, 1)
    assert [path.name for path in tmp_path.glob("*.tmp")] == [young.name]


def test_the_user_limits_the_history(workspace: Path, tmp_path: Path, capsys: Capture) -> None:
    settings = tmp_path / "config/mlcbuild/settings.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[history]\nmax_builds = 2\n")
    for number in range(3):
        (workspace / "data.txt").write_text(f"{number}\n")
        assert main(["build", ":copy"]) == 0
    assert len(records(history_of(workspace))) == 2
    settings.write_text('[history]\nmax_builds = -1\nmax_size = "big"\nmin_size = 3\n')
    assert main(["build", ":copy"]) == 7
    told = capsys.readouterr().err
    assert '"max_size" in [history] is not a size: "big"' in told
    assert "unknown" in told
    settings.write_text("[history]\nmax_builds = 0\n")
    (workspace / "data.txt").write_text("new\n")
    assert main(["build", ":copy"]) == 0
    assert main(["build", ":copy"]) == 0
    assert not history_of(workspace).exists()


def test_the_file_of_no_ops_keeps_its_newer_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(no_op_builds, "_LONGEST", 8 << 10)
    monkeypatch.setattr(no_op_builds, "_KEPT", 4 << 10)
    for number in range(200):
        idle(tmp_path, number)
        left = numbers(unnumbered(tmp_path))
        assert left == list(range(number, number - len(left), -1))
        assert left[-1] == 0 or len(left) > 15
    assert (tmp_path / NO_OP_FILE).stat().st_size <= 8 << 10


# Two writers at once.


def test_commands_at_once_lose_no_build_that_had_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(no_op_builds, "_LONGEST", 16 << 10)  # so that the file is replaced again and again
    monkeypatch.setattr(no_op_builds, "_KEPT", 8 << 10)

    def writer(first: int) -> None:
        for number in range(first, first + 200):
            idle(tmp_path, number)

    processes = [FORK.Process(target=writer, args=(start,)) for start in (1000, 2000, 3000)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    content = (tmp_path / NO_OP_FILE).read_bytes()
    lines = [line for line in content.split(b"\n") if line]
    left = numbers(unnumbered(tmp_path))
    assert len(left) == len(lines) > 30  # each line is whole
    for start in (1000, 2000, 3000):
        own = [number for number in left if start <= number < start + 200]
        assert own == sorted(own, reverse=True)
        if own:  # what is left of a writer are its last builds, without a gap
            assert own == list(range(start + 199, start + 199 - len(own), -1))
    assert max(left) == 3199 or left  # the last line of the file is that of the last writer
    assert [path.name for path in tmp_path.iterdir()] == [NO_OP_FILE]


def test_builds_at_once_keep_within_the_limit_and_read_each_others_records(tmp_path: Path) -> None:
    def writer(first: int) -> None:
        for number in range(first, first + 30):
            write(tmp_path, number, limits=HistoryLimits(builds=10))
            for build in records(tmp_path):
                list(build.actions())

    processes = [FORK.Process(target=writer, args=(start,)) for start in (1000, 1500, 2000)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert numbers(records(tmp_path)) == list(range(2029, 2019, -1))
    assert len(list(tmp_path.iterdir())) == 10


# Files of earlier versions.

OLD_ACTIONS = (
    {"identifier": "//m:a Export", "mnemonic": "Export", "owner": "//m:a", "status": "executed_local", "start": 0.5,
     "time": 2.5, "executor": "local", "cause": "changed", "key": "ab" * 32},
    {"identifier": "//m:a Link", "mnemonic": "Link", "owner": "//m:a", "status": "up_to_date", "time": 2.5},
)  # fmt: skip
OLD_SUMMARY = {
    "format": "mlcbuild build record",
    "version": 1,
    "invocation": invocation_of(5),
    "began": BEGAN,
    "arguments": ["build", "//m:a"],
    "targets": ["//m:a"],
    "exit_code": 0,
    "wall_seconds": 3.0,
    "jobs": 2,
    "counts": {"executed_local": 1, "up_to_date": 1},
    "critical_path": [{"identifier": "//m:a Export", "mnemonic": "Export", "seconds": 2.0, "title": ""}],
    "slacks": {},
}


def test_records_of_the_first_version_are_read_and_grow_old_with_the_others(workspace: Path, capsys: Capture) -> None:
    directory = history_of(workspace)
    directory.mkdir(parents=True)
    path = directory / "20231114T221320.250-00000005.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (OLD_SUMMARY, *OLD_ACTIONS)))
    write(directory, 6)
    new, old = records(directory)
    assert (new.invocation, old.invocation) == (invocation_of(6), invocation_of(5))
    assert [action["identifier"] for action in old.actions()] == ["//m:a Export", "//m:a Link"]
    assert old.critical_path[0]["seconds"] == 2.0
    target = old.outcomes["//m:a"]
    assert (target.outcome, target.ran, target.cached, target.seconds) == ("built", 1, 1, 2.0)
    for arguments in ([], ["what-ran", "--build", "2"], ["critical-path", "--build", "2"], ["--target", "//m:a"]):
        assert main(["log", *arguments]) == 0
    assert "//m:a Export" in capsys.readouterr().out
    path.write_text(json.dumps(OLD_SUMMARY) + "\n" + '{"identifier": "x"}\n[]\n')
    assert records(directory)[1].outcomes == {}
    write(directory, 7, limits=HistoryLimits(builds=2))
    assert not path.exists()
