"""`mlcbuild log`: records of builds, and their listings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.arguments.completion import complete_build, complete_mnemonic
from mlcbuild.cli.log.recording import write_record
from mlcbuild.cli.log.records import records
from mlcbuild.cli.main import main
from mlcbuild.cli.settings.history import HistoryLimits
from mlcbuild.engine.build_events import BuildEvent
from tests.cli.build_events import BEGAN, STORY
from tests.cli.build_history import LIMITS, history_of
from tests.cli.copying_workspace import copying_workspace

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    with copying_workspace(tmp_path) as root:
        yield root


def remember(
    workspace: Path,
    *,
    began: float = BEGAN,
    story: tuple[BuildEvent, ...] = STORY,
    code: int = 1,
    limits: HistoryLimits = LIMITS,
) -> None:
    write_record(
        history_of(workspace),
        story,
        began=began,
        arguments=["build", "//m:a", "//m:b"],
        exit_code=code,
        limits=limits,
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("builds", ["log"]),
        ("builds-json", ["log", "--output", "json"]),
        ("what-ran", ["log", "what-ran"]),
        ("what-ran-slowest", ["log", "what-ran", "--slowest", "--mnemonic", "CompileKernel"]),
        ("what-ran-failed-json", ["log", "what-ran", "--failed", "--output", "json"]),
        ("critical-path", ["log", "critical-path"]),
        ("critical-path-json", ["log", "critical-path", "--output", "json"]),
        ("show", ["show", "//m:a", "CompileKernel", "add", "n×2048", "--build", "1"]),
        ("show-json", ["show", "//m:a Link", "--build", "1", "--output", "json"]),
        ("show-hit", ["show", "//m:a", "import", "--build", "1"]),
        ("show-kernels", ["show", "//m:a", "CompileKernel", "--build", "1"]),
        ("show-target", ["show", "//m:a", "--build", "1"]),
        ("show-target-color", ["--color", "always", "show", "//m:a", "--build", "1"]),
    ],
)
@pytest.mark.usefixtures("eighty_columns")
def test_listings_of_builds(
    name: str, arguments: list[str], workspace: Path, snapshot: Snapshot, capsys: Capture
) -> None:
    broken_off = (STORY[0], STORY[2])
    remember(workspace, began=BEGAN - 100, story=broken_off, code=8)
    remember(workspace)
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    snapshot(f"log-{name}", out)


@pytest.mark.parametrize("command", ["log", "log what-ran", "log critical-path", "show", "diff"])
def test_help(command: str, snapshot: Snapshot, capsys: Capture) -> None:
    assert main([*command.split(), "--help"]) == 0
    snapshot(f"help-{command.replace(' ', '-')}", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("no-such-build", ["log", "what-ran", "--build", "7"]),
        ("no-such-invocation", ["log", "critical-path", "--build", "abcdef"]),
        ("no-such-target", ["show", "//m:other", "--build", "1"]),
        ("no-such-mnemonic", ["show", "//m:a", "Exprot", "--build", "1"]),
        ("no-such-kernel", ["show", "//m:a", "CompileKernel", "nothing", "--build", "1"]),
    ],
)
@pytest.mark.usefixtures("eighty_columns")
def test_errors(name: str, arguments: list[str], workspace: Path, snapshot: Snapshot, capsys: Capture) -> None:
    remember(workspace)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    snapshot(f"usage-log-{name}", err)


def test_a_workspace_without_builds_says_so(workspace: Path, capsys: Capture) -> None:
    assert main(["log"]) == 0
    assert capsys.readouterr().out == "no build of this workspace is recorded\n"
    assert main(["log", "what-ran"]) == 2
    assert "build something first" in capsys.readouterr().err


def test_as_many_builds_are_remembered_as_the_limit_says(workspace: Path) -> None:
    for number in range(12):
        remember(workspace, began=BEGAN + number, limits=HistoryLimits(builds=10))
    known = records(history_of(workspace))
    assert [record.began for record in known] == [BEGAN + number for number in range(11, 1, -1)]
    assert len(list((history_of(workspace)).iterdir())) == 10


@pytest.mark.parametrize("damage", ["", "{", '{"version":1}\n', '{"version":2}\n', "\0\n"])
def test_a_damaged_record_is_none(workspace: Path, damage: str) -> None:
    remember(workspace)
    remember(workspace, began=BEGAN + 1)
    newest, *_ = records(history_of(workspace))
    assert newest.path is not None
    newest.path.write_text(damage)
    assert [record.began for record in records(newest.path.parent)] == [BEGAN]


def test_a_build_is_named_by_number_or_by_its_first_digits(workspace: Path, capsys: Capture) -> None:
    remember(workspace)
    for wanted in ("1", "1b4e28", "1B4E"):
        assert main(["log", "what-ran", "--build", wanted]) == 0
    assert main(["log", "what-ran", "--build", "2"]) == 2
    capsys.readouterr()


def test_builds_and_actions_are_completed(workspace: Path) -> None:
    remember(workspace)
    remember(workspace, began=BEGAN + 1)
    assert complete_build("") == ["1", "2"]
    assert complete_mnemonic("") == ["CompileKernel", "Export", "Import", "Link"]
    assert complete_mnemonic("L") == ["Link"]


def told(capsys: Capture, *arguments: str) -> Any:
    assert main(["log", *arguments, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def shown_of(capsys: Capture, build: str, *words: str) -> Any:
    """The only action that `show --build` prints."""
    assert main(["show", *words, "--build", build, "--output", "json"]) == 0
    (action,) = json.loads(capsys.readouterr().out)["actions"]
    return action


def test_a_real_build_is_remembered_with_why_it_ran(workspace: Path, capsys: Capture) -> None:
    assert main(["build", ":again"]) == 0
    capsys.readouterr()
    first = told(capsys, "what-ran")["actions"]
    assert [(action["action"], action["cause"]) for action in first] == [
        ("//:copy Command", "first build"),
        ("//:again Command", "first build"),
    ]
    assert all(action["executor"] == "local" and action["seconds"] > 0 for action in first)
    (workspace / "data.txt").write_text("2\n")
    assert main(["build", ":again"]) == 0
    assert main(["build", ":again"]) == 0  # nothing to do: it takes no number
    assert main(["build", ":again", "--recache"]) == 0
    capsys.readouterr()
    builds = told(capsys)
    assert [(build["build"], build["no_op"]) for build in builds] == [(1, False), (None, True), (2, False), (3, False)]
    assert [build["actions"] for build in builds if not build["no_op"]] == [{"executed_local": 2}] * 3
    assert builds[1]["actions"] == {"up_to_date": 2}
    assert builds[1]["targets"] == ["//:again"]
    assert told(capsys, "what-ran", "--build", builds[1]["invocation_id"][:8])["actions"] == []
    assert {action["cause"] for action in told(capsys, "what-ran", "--build", "1")["actions"]} == {"asked"}
    assert {action["cause"] for action in told(capsys, "what-ran", "--build", "2")["actions"]} == {"changed"}
    shown = shown_of(capsys, "2", "//:copy", "Command")
    now, before = shown["key_components"], shown["previous_key_components"]
    assert {name for name in now if now[name] != before[name]} == {"input in/data.txt"}
    assert shown["log"] == "copying\n"
    path = told(capsys, "critical-path", "--build", "2")
    assert [step["action"] for step in path["critical_path"]] == ["//:copy Command", "//:again Command"]
    assert path["jobs"] >= 1
    assert path["work_seconds"] == pytest.approx(path["path_seconds"], abs=0.01)


def test_a_failure_is_shown_with_what_it_printed(workspace: Path, capsys: Capture) -> None:
    assert main(["build", ":bad"]) == 1
    capsys.readouterr()
    shown = shown_of(capsys, "1", ":bad")
    assert (shown["status"], shown["exit_code"], shown["log"]) == ("failed", 3, "it goes wrong\n")
    assert told(capsys, "what-ran", "--failed")["actions"][0]["action"] == "//:bad Command"


def test_results_that_went_are_the_cause_of_a_run(workspace: Path, capsys: Capture) -> None:
    assert main(["build", ":copy"]) == 0
    assert main(["cache", "rm", "//:copy"]) == 0
    assert main(["build", ":copy"]) == 0
    capsys.readouterr()
    assert [action["cause"] for action in told(capsys, "what-ran")["actions"]] == ["no result"]


def test_a_clean_keeps_what_is_known_of_builds(workspace: Path, capsys: Capture) -> None:
    remember(workspace)
    assert main(["clean"]) == 0
    assert len(told(capsys)) == 1
    assert main(["clean", "--expunge"]) == 0
    assert told(capsys) == []


def test_a_list_of_builds_loads_no_workspace(workspace: Path) -> None:
    remember(workspace)
    code = (
        "import sys; from mlcbuild.cli.main import main; main(['log']);"
        "unwanted = ('mlcbuild.rules', 'mlcbuild.cache.disk', 'mlcbuild.engine.driver', 'asyncio', 'numpy');"
        "print([name for name in unwanted if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("command", ["log", "log what-ran", "log critical-path", "show //m:a Link --build 1"])
def test_what_was_built_is_shown_of_a_workspace_that_is_broken_now(
    command: str, workspace: Path, capsys: Capture
) -> None:
    remember(workspace)
    assert main(command.split()) == 0
    shown = capsys.readouterr().out
    for broken in ("[workspace]\n= =\n", '[workspace]\ndigest = 3\n[[nonsense]]\nname = "x"\n'):
        (workspace / "BUILD.toml").write_text(broken)
        assert main(command.split()) == 0
        assert capsys.readouterr().out == shown


def test_an_action_that_ran_again_in_a_build_that_broke_off_counts_once(workspace: Path) -> None:
    remember(workspace, story=(STORY[0], STORY[2], STORY[2]))
    (record,) = records(history_of(workspace))
    assert record.counts == {"executed_local": 1}
