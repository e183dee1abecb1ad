"""`mlcbuild report`: which builds it shows, its data, and its file. What a browser makes of it: test_report_page."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.cli.main import main
from mlcbuild.cli.report_page.html import SCRIPTS, STYLE, asset, page_html
from mlcbuild.engine.build_events import ActionsAdded, ActionStarted
from tests.cli.kernel_workspace import enter_kernel_workspace
from tests.cli.report_builds import BUILD_FILE, EventLogText, action, small_build

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "BUILD.toml").write_text(BUILD_FILE)
    (root / "data.txt").write_text("1\n")
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root


def data_of(page: Path) -> tuple[Any, Any]:
    """The two objects in a page."""
    found = re.findall(
        r'<script type="application/json" id="(\w+)">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL
    )
    assert [name for name, _ in found] == ["build", "details"]
    return json.loads(found[0][1]), json.loads(found[1][1])


def reported(capsys: Capture, *arguments: str) -> tuple[Any, Any]:
    capsys.readouterr()
    assert main(["report", *arguments]) == 0
    return data_of(Path(capsys.readouterr().out.strip()))


def of_action(data: tuple[Any, Any], identifier: str) -> tuple[Any, Any]:
    index = next(index for index, each in enumerate(data[0]["actions"]) if each["identifier"] == identifier)
    return data[0]["actions"][index], data[1]["actions"][index]


def test_help(snapshot: Snapshot, capsys: Capture) -> None:
    assert main(["report", "--help"]) == 0
    snapshot("help-report", capsys.readouterr().out)


def test_the_data_of_a_page(tmp_path: Path, snapshot: Snapshot, capsys: Capture) -> None:
    events = small_build().write(tmp_path / "events.jsonl")
    data = reported(capsys, "--events", str(events), "--to", str(tmp_path / "p.html"), "--disk-cache", str(tmp_path))
    snapshot("report-data", json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def test_the_last_build_is_shown_with_what_it_read_and_printed(workspace: Path, capsys: Capture) -> None:
    assert main(["build", ":again-small", ":again-large"]) == 0
    data = reported(capsys)
    assert (workspace / ".mlcbuild/report.html").is_file()
    copy, details = of_action(data, "//:copy Command")
    assert (copy["status"], copy["cause"]) == ("executed_local", "first build")
    assert details["known"] is True
    assert details["log"] == "copying\n"
    assert details["inputs"][0][0] == "in/data.txt"
    assert data[1]["files"][details["inputs"][0][1]].endswith("/2")
    _, reader = of_action(data, "//:again-small Command")
    assert reader["inputs"][0][1] == details["outputs"][0][1]  # so the page knows who made an input
    assert [target["axes"] for target in data[0]["targets"]] == [{"size": "small"}, {"size": "large"}]
    assert data[0]["comparison"] is None


def test_a_changed_file_is_named_as_the_reason_and_the_build_before_is_compared(
    workspace: Path, capsys: Capture
) -> None:
    assert main(["build", ":copy"]) == 0
    assert main(["build", ":again-small"]) == 0  # other targets: not what is compared
    (workspace / "data.txt").write_text("2\n")
    assert main(["build", ":copy"]) == 0
    data = reported(capsys)
    copy, details = of_action(data, "//:copy Command")
    assert copy["cause"] == "changed"
    assert [(each["kind"], each["name"]) for each in details["differences"]] == [("input", "in/data.txt")]
    assert details["differences"][0]["text"] == ["@@ -1 +1 @@", "-1", "+2"]
    assert copy["before"]["status"] == "executed_local"
    assert copy["before"]["same_key"] is False
    earlier = data[0]["comparison"]["build"]["invocation"]
    assert earlier == reported(capsys, "3")[0]["build"]["invocation"]
    assert reported(capsys, "--compare", "none")[0]["comparison"] is None
    gone = reported(capsys, "--compare", "2")[0]["comparison"]["gone"]
    assert [each["title"] for each in gone] == ["//:again-small Command"]


def test_a_failed_build_has_its_message_and_log(workspace: Path, capsys: Capture) -> None:
    assert main(["build", ":bad"]) == 1
    data = reported(capsys)
    bad, details = of_action(data, "//:bad Command")
    assert (bad["status"], bad["exit_code"], details["log"]) == ("failed", 3, "it goes wrong\n")
    assert data[0]["targets"][0]["success"] is False
    assert data[0]["build"]["exit_code"] == 1


def test_a_build_that_had_nothing_to_do_is_an_error(workspace: Path, capsys: Capture) -> None:
    assert main(["build", ":copy"]) == 0
    assert main(["build", ":copy"]) == 0
    capsys.readouterr()
    assert main(["log"]) == 0
    invocation = capsys.readouterr().out.split()[3]
    assert main(["report", invocation]) == 2
    assert f"build {invocation} had nothing to do: there is nothing to show" in capsys.readouterr().err


def test_events_of_a_build_tell_the_same_elsewhere(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """A page from a CI artifact: no workspace, and perhaps no disk cache."""
    events = tmp_path / "ci.jsonl"
    assert main(["build", ":again-small", "--events", str(events)]) == 0
    here = reported(capsys)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    there = reported(capsys, "--events", str(events))
    assert (elsewhere / "ci.html").is_file()
    for name in ("targets", "actions", "critical_path", "notices"):
        assert there[0][name] == here[0][name]
    assert there[0]["build"]["began"] == pytest.approx(here[0]["build"]["began"], abs=0.01)
    assert there[1] == here[1]
    bare = reported(capsys, "--events", str(events), "--disk-cache", str(tmp_path / "empty"), "--compare", str(events))
    assert of_action(bare, "//:copy Command")[1]["log"] == "copying\n"
    assert bare[0]["actions"][0]["before"]["same_key"] is True


def test_an_event_log_that_was_cut_short_is_shown(tmp_path: Path, capsys: Capture) -> None:
    events = small_build().write(tmp_path / "events.jsonl")
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join(lines[:7]) + lines[7][:40])
    build, _ = reported(capsys, "--events", str(events), "--to", str(tmp_path / "page.html"))
    assert build["build"]["error"] == "the event log was cut short"
    assert len(build["actions"]) == 4
    assert [target["success"] for target in build["targets"]] == [None, None, None]


def test_actions_that_were_announced_and_have_no_end_are_listed(tmp_path: Path, capsys: Capture) -> None:
    announced = [f"//m:a CompileKernel {name}" for name in ("add", "mul", "div")]
    build = EventLogText(
        actions=[
            action("Partition", "executed_local", 0.1, 0.2),
            action("CompileKernel add", "executed_local", 0.2, 0.4, announced_by="//m:a Partition"),
        ],
        begun=[
            ActionsAdded(count=2, total=2, identifiers=("//m:a Partition", "//m:a Link")),
            ActionsAdded(count=3, total=5, identifiers=tuple(announced), discovered_by="//m:a Partition"),
            ActionStarted(identifier=announced[1], mnemonic="CompileKernel", executor="local", time=0.3),
        ],
        exit_code=None,
    )
    events = build.write(tmp_path / "events.jsonl")
    shown, _ = reported(capsys, "--events", str(events), "--to", str(tmp_path / "page.html"))
    assert [(each["identifier"], each["status"], each.get("announced_by", "")) for each in shown["actions"]] == [
        ("//m:a Partition", "executed_local", ""),
        ("//m:a CompileKernel add", "executed_local", "//m:a Partition"),
        ("//m:a Link", "unfinished", ""),
        ("//m:a CompileKernel mul", "unfinished", "//m:a Partition"),
        ("//m:a CompileKernel div", "unfinished", "//m:a Partition"),
    ]
    assert [each.get("message", "") for each in shown["actions"][3:]] == ["it had begun when the log ended", ""]


def test_kernels_know_what_announced_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """In records and in event logs, whether they ran, came from a cache, or could not run."""
    root = enter_kernel_workspace(tmp_path, monkeypatch)
    assert main(["build", "//:package", "--events", "events.jsonl"]) == 0
    (root / "model.txt").write_text((root / "model.txt").read_text().replace("second", "other"))
    assert main(["build", "//:package", "--from-cache-only"]) == 10
    assert main(["build", "//:package", "--jobs", "1"]) == 0
    for arguments in (["--events", "events.jsonl"], ["2"], ["1"]):
        shown, _ = reported(capsys, *arguments, "--to", str(tmp_path / "page.html"))
        kernels = [each for each in shown["actions"] if each["mnemonic"] == "CompileKernel"]
        assert [each["announced_by"] for each in kernels] == ["//:model Partition"] * (3 if arguments != ["2"] else 0)
        assert all("announced_by" not in each for each in shown["actions"] if each not in kernels)


def test_a_page_on_standard_output_is_nothing_else(workspace: Path, capsys: Capture) -> None:
    assert main(["build", ":copy"]) == 0
    capsys.readouterr()
    assert main(["report", "--to", "-"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("<!doctype html>")
    assert page.endswith("</html>\n")
    assert main(["report", "--to", "page.html"]) == 0
    assert (workspace / "page.html").read_text() == page
    assert not (workspace / "-").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("empty", ""),
        ("other", '{"traceEvents": []}\n'),
        ("version", '{"event": "header", "format": "mlcbuild events", "version": 9}\n'),
        ("line", '{"event": "header", "format": "mlcbuild events", "version": 1}\nnot JSON\n{}\n'),
        ("form", '{"event": "header", "format": "mlcbuild events", "version": 1}\n{"event": "action_finished"}\n'),
        (
            "number",
            '{"event": "header", "format": "mlcbuild events", "version": 1}\n'
            '{"event": "action_finished", "identifier": "a", "time": NaN}\n',
        ),
    ],
)
@pytest.mark.usefixtures("eighty_columns")
def test_another_file_is_an_error_that_says_so(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("events.jsonl").write_text(text)
    assert main(["report", "--events", "events.jsonl"]) == 2
    snapshot(f"usage-report-{name}", capsys.readouterr().err)
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".html"] == []


def test_a_build_that_is_not_there_is_an_error(workspace: Path, capsys: Capture) -> None:
    assert main(["report"]) == 2
    assert "build something first" in capsys.readouterr().err
    assert main(["report", "--events", "no-such.jsonl"]) == 2
    assert "no-such.jsonl cannot be read: No such file or directory" in capsys.readouterr().err


def test_a_folder_for_the_page_is_made_and_an_unwritable_place_is_an_error(tmp_path: Path, capsys: Capture) -> None:
    events = small_build().write(tmp_path / "events.jsonl")
    assert reported(capsys, "--events", str(events), "--to", str(tmp_path / "a/b/page.html"))
    assert main(["report", "--events", str(events), "--to", str(events / "page.html")]) == 36
    assert "the report cannot be written" in capsys.readouterr().err


def test_a_changed_kernel_is_compared_with_its_former_form(tmp_path: Path, capsys: Capture) -> None:
    """Its identifier has its content; what it computes for which target is the same."""

    def build(content: str) -> EventLogText:
        details = {"kernel": content, "operation": "add", "functions": ["decode"]}
        return EventLogText(actions=[action(f"CompileKernel {content}", "executed_local", 0.0, 1.0, details=details)])

    before = build("aaaa").write(tmp_path / "before.jsonl")
    now = build("bbbb").write(tmp_path / "now.jsonl")
    data, _ = reported(capsys, "--events", str(now), "--compare", str(before), "--to", str(tmp_path / "page.html"))
    assert data["actions"][0]["before"] == {"status": "executed_local", "seconds": 1.0, "same_key": False}
    assert data["comparison"]["gone"] == []


def test_the_page_allows_its_own_scripts_and_style_and_nothing_else() -> None:
    page = page_html({}, {})
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    sources = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert sources["default-src"] == sources["base-uri"] == sources["form-action"] == "'none'"
    for kind, contents in (("script-src", [asset(name) for name in SCRIPTS]), ("style-src", [asset(STYLE)])):
        digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in contents]
        assert sources[kind].split() == [f"'sha256-{digest}'" for digest in digests]


def test_no_asset_asks_for_anything_or_ends_its_element() -> None:
    for name in (*SCRIPTS, STYLE):
        assert not re.search(r"https?:|url\(|@import|\bfetch\(|XMLHttpRequest|innerHTML|\beval\b|</", asset(name)), name


@settings(deadline=None)  # the machine may be busy
@given(texts=st.lists(st.text() | st.text("</script>!-[]&\u2028\u2029\udcff\\\"'{}data ")))
def test_any_text_comes_back_from_the_page_as_it_was(texts: list[str]) -> None:
    page = page_html({"texts": texts}, {})
    (content,) = re.findall(r'id="build">(.*?)</', page, re.DOTALL)
    assert json.loads(content) == {"texts": texts}
    assert not set("<>&\u2028\u2029") & set(content)


def test_the_list_of_commands_does_not_import_the_page() -> None:
    code = (
        "import sys; from mlcbuild.cli.main import main; main(['report', '--help']);"
        "unwanted = ('mlcbuild.cli.report_page', 'mlcbuild.cache.disk');"
        "print([name for name in unwanted if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
