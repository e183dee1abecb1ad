"""JUnit, job summary, Code Quality and annotations of whole builds."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main
from tests.cli.ci_reports import Capture, Snapshot, checked
from tests.cli.command_workspace import BUILD_FILE, PIN
from tests.durations import without_times

# Whole builds


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data.bin").write_bytes(b"hello\n")
    root = tmp_path / "checkout" / "workspace"
    root.mkdir(parents=True)
    text = BUILD_FILE.replace("{data}", str(tmp_path / "data.bin")).replace("{pin}", PIN)
    (root / "BUILD.toml").write_text(text)
    (root / "name.txt").write_text("world\n")
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("CI", "GITHUB_ACTIONS", "GITHUB_WORKSPACE", "GITLAB_CI", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return root


def on_github(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(root.parent))


def cases_of(path: Path) -> dict[str, ElementTree.Element]:
    return {case.attrib["name"]: case for case in checked(path.read_text(encoding="utf-8")).iter("testcase")}


def test_a_build_with_failures_writes_all_reports(
    root: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot, capsys: Capture
) -> None:
    on_github(monkeypatch, root)
    command = ["build", ":program", ":after-broken", ":broken", ":equal-1", ":equal-2", "--keep-going", "-j", "1"]
    files = ["--junit", "j.xml", "--job-summary", "s.md", "--code-quality", "q.json"]
    assert main([*command, *files, "-q"]) == ExitCode.BUILD_FAILED
    out, err = capsys.readouterr()
    assert out == "mlcbuild-out/default/program/program\n"
    cases = cases_of(root / "j.xml")
    assert {name for name, case in cases.items() if case.find("failure") is not None} == {
        "//:broken",
        "//:equal-1",
        "//:equal-2",
    }
    assert cases["//:after-broken"].find("skipped") is not None
    failure = cases["//:equal-2"].find("failure")
    assert failure is not None
    assert (failure.text or "").endswith("\none")
    account = cases["//:program"].findtext("system-out") or ""
    assert re.search(r"^mlcbuild-out/default/program/program [0-9a-f]{64}/\d+$", account, re.MULTILINE)
    snapshot("annotations", "".join(f"{line}\n" for line in err.splitlines() if line.startswith("::")))
    summary = (root / "s.md").read_text(encoding="utf-8")
    assert summary.startswith("### mlcbuild: 3 failed, 1 not built, 1 built (exit code 1: an action failed)\n")
    quality = json.loads((root / "q.json").read_text())
    assert {item["location"]["path"] for item in quality} == {"workspace/BUILD.toml"}
    assert len(quality) == 2  # one of the two equal actions, and the broken one


def test_errors_before_a_build_reach_the_reports(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    on_github(monkeypatch, root)
    with (root / "BUILD.toml").open("a") as stream:
        stream.write('\n[[command]]\nname = "x"\ntool = ":sh"\noutputs = 5\n\n[[nothing]]\nname = "y"\n')
    files = ["--junit", "j.xml", "--job-summary", "s.md", "--code-quality", "q.json"]
    assert main(["build", "//...", *files]) == ExitCode.ANALYSIS_FAILED
    annotations = [line for line in capsys.readouterr().err.splitlines() if line.startswith("::error ")]
    places = [re.match(r"::error file=workspace/BUILD\.toml,line=(\d+),", line) for line in annotations]
    lines = sorted(int(place[1]) for place in places if place)
    assert len(lines) == 2
    cases = cases_of(root / "j.xml").values()
    assert sum(case.find("error") is not None for case in cases) == len(cases) == 2
    quality = json.loads((root / "q.json").read_text())
    assert sorted(item["location"]["lines"]["begin"] for item in quality) == lines
    assert "no target was built (exit code 7: an error in the workspace)" in (root / "s.md").read_text()


def test_a_build_from_caches_alone_says_what_has_no_result(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    on_github(monkeypatch, root)
    code = main(["build", ":program", "--from-cache-only", "--junit", "j.xml", "--job-summary", "s.md"])
    assert code == ExitCode.WOULD_RUN
    cases = cases_of(root / "j.xml")
    failure = cases["//:greeting"].find("failure")
    assert failure is not None
    assert failure.attrib["type"] == "not cached"
    assert cases["//:program"].find("skipped") is not None
    assert "- `//:greeting Command`: no cached result: never built here" in (root / "s.md").read_text()
    annotations = [line for line in capsys.readouterr().err.splitlines() if line.startswith("::")]
    assert len(annotations) == 1
    assert "title=//%3Agreeting is not cached::1 action without a cached result" in annotations[0]


def test_a_build_with_nothing_to_do_still_writes_its_reports(root: Path, capsys: Capture) -> None:
    assert main(["build", ":program"]) == 0
    assert main(["build", ":program", "--junit", "j.xml", "--job-summary", "s.md"]) == 0
    account = cases_of(root / "j.xml")["//:program"].findtext("system-out") or ""
    assert account.startswith("actions: 1 up to date\n")
    assert "| `//:program` | built | 0 | 1 | 0 | 0 | 0.0 s |" in (root / "s.md").read_text()


def test_ci_changes_nothing_that_a_good_build_prints(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def printed() -> tuple[str, str]:
        assert main(["build", ":program", "--recache", "-j", "1"]) == 0
        shown = capsys.readouterr()
        return shown.out, without_times(shown.err)

    here = printed()
    on_github(monkeypatch, root)
    monkeypatch.setenv("CI", "true")
    assert printed() == here


def test_nothing_is_annotated_elsewhere_unless_asked(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert main(["build", ":broken"]) == ExitCode.BUILD_FAILED
    assert "::" not in capsys.readouterr().err
    assert main(["build", ":broken", "--annotations=github"]) == ExitCode.BUILD_FAILED
    assert "\n::error file=BUILD.toml,line=" in capsys.readouterr().err
    on_github(monkeypatch, root)
    assert main(["build", ":broken", "--annotations=none"]) == ExitCode.BUILD_FAILED
    assert "::" not in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_told_and_a_dry_run_has_none(root: Path, capsys: Capture) -> None:
    assert main(["build", ":greeting", "--junit", "nowhere/j.xml"]) == ExitCode.COMMAND_LINE
    assert "--junit: there is no directory nowhere" in capsys.readouterr().err
    (root / "folder").mkdir()
    assert main(["build", ":greeting", "--job-summary", "folder"]) == ExitCode.LOCAL_ENVIRONMENT
    assert "a report cannot be written: folder: Is a directory" in capsys.readouterr().err
    assert main(["build", ":greeting", "-n", "--junit", "j.xml"]) == ExitCode.COMMAND_LINE
    assert "there is nothing to write for --junit" in capsys.readouterr().err


def test_an_interrupted_build_writes_its_reports(root: Path, capsys: Capture) -> None:
    import os
    import signal

    began = root / ".mlcbuild"

    def interrupt() -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end and not any(began.rglob("scratch*/*")):
            time.sleep(0.05)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    code = main(["build", ":slow", "--junit", "j.xml"])
    thread.join()
    assert code == ExitCode.INTERRUPTED
    cases = cases_of(root / "j.xml")
    assert cases["//:slow"].find("skipped") is not None or cases["//:slow"].find("failure") is not None
