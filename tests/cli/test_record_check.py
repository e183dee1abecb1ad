"""The doctor's check of the history of builds: each kind of damage is named, and a whole history has none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlcbuild.cli.log.no_op_builds import NO_OP_FILE
from mlcbuild.cli.log.record_check import check_records
from mlcbuild.cli.log.record_file import record_files
from mlcbuild.cli.main import main
from tests.cli.build_history import history_of, mixed
from tests.cli.copying_workspace import copying_workspace

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    with copying_workspace(tmp_path) as root:
        mixed(history_of(root))
        yield root


def test_a_whole_history_has_no_damage(workspace: Path) -> None:
    found = check_records(history_of(workspace))
    assert (found.count, found.damaged) == (5, ())  # four records, and the file of all others
    assert check_records(workspace / "nowhere").count == 0


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda _: b"", "a line is no JSON"),
        (lambda _: b"[]\n", "its first line is no summary"),
        (lambda content: content.replace(b'"version": 2', b'"version": 9', 1), "its version is 9, which this mlcbuild"),
        (lambda content: content.replace(b'"exit_code"', b'"exit"', 1), "its summary lacks fields"),
        (lambda content: content[:-9], "it was cut short"),
        (lambda content: content.partition(b"\n")[0] + b"\n" + b"x" * 50, "its compressed part is damaged"),
    ],
)
def test_a_damaged_record_is_named_with_the_reason(
    spoil: Callable[[bytes], bytes], reason: str, workspace: Path, capsys: Capture
) -> None:
    path = record_files(history_of(workspace))[1]
    content = path.read_bytes()
    assert spoil(content) != content
    path.write_bytes(spoil(content))
    ((damaged, told),) = check_records(history_of(workspace)).damaged
    assert (damaged, told[: len(reason)]) == (path, reason)
    capsys.readouterr()
    assert main(["doctor", "workspace", "--output", "json"]) == 0  # builds work
    (check,) = (each for each in json.loads(capsys.readouterr().out)["checks"] if each["name"] == "history")
    assert (check["verdict"], check["measured"]) == ("warning", "1 of 5 records of builds are damaged")
    assert check["advice"][0] == f"{path.relative_to(workspace)}: {told}"


def test_damaged_lines_of_other_builds_are_counted(workspace: Path) -> None:
    file = history_of(workspace) / NO_OP_FILE
    file.write_bytes(file.read_bytes() + b"\n{\n7\n")
    ((damaged, told),) = check_records(history_of(workspace)).damaged
    assert (damaged, told) == (file, "2 of 6 lines are no JSON objects")


def test_a_folder_in_the_place_of_a_record_is_told(workspace: Path) -> None:
    path = record_files(history_of(workspace))[0]
    path.unlink()
    path.mkdir()
    ((damaged, told),) = check_records(history_of(workspace)).damaged
    assert damaged == path
    assert told
