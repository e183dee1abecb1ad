"""Kernels have readable names wherever people look: none of them sees the name that a kernel has for programs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.console.live_display import live_lines
from mlcbuild.cli.console.progress import Progress
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main
from mlcbuild.cli.output.terminal import Style
from mlcbuild.engine.build_events import ActionStarted
from tests.cli.browser import Browser, chromium
from tests.cli.kernel_workspace import MODEL, edit, write_kernel_workspace

Capture = pytest.CaptureFixture[str]

# What a backend for devices does: each kernel has a second action, which takes the output of the first.
DEVICE_ACTIONS = """\
            actions.append(
                stage_action(
                    f"{self.owner} CompileDevice {name}",
                    "CompileDevice",
                    "pipeline.stages.compile_device:run",
                    owner=self.owner,
                    inputs={"source": actions[-1].output(f"out/{name}.o")},
                    outputs={"cubin": f"{name}.cubin"},
                    parameters={"arch": "sm_90"},
                ).described(actions[-1].description)
            )
"""
COMPILE_DEVICE = """\
import os
from pathlib import Path


def run(*, source: Path, cubin: Path, arch: str) -> None:
    text = source.read_text()
    if "SECOND" in text:
        raise ValueError("no such instruction")
    if "THIRD" in text:
        os.abort()
    cubin.write_text(f"{arch} {text}")
"""
TWIN = """
[[kernels]]
name = "twin"
text = "model.txt"
level = 3
"""
FULL_NAMES = [
    hashlib.sha256(f"{operation} {body}".encode()).hexdigest()[:16]
    for operation, _, body in (line.split(" ", 2) for line in MODEL.splitlines())
]
MATMUL, ADD, NORM = (
    f"{operation} ({name[:8]})" for operation, name in zip(("matmul", "add", "rms_norm"), FULL_NAMES, strict=True)
)
REPORTS = {
    "--build-report": "report.json",
    "--profile": "profile.json",
    "--events": "events.jsonl",
    "--junit": "junit.xml",
    "--job-summary": "summary.md",
    "--code-quality": "quality.json",
}


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A build of two targets with equal kernels, of which one breaks and one kills its worker."""

    root: Path
    said: str

    def json(self, name: str) -> Any:
        return json.loads((self.root / name).read_text())

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.root / "events.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory, warm_workers: Mapping[str, str]) -> Iterator[Failed]:
    folder = tmp_path_factory.mktemp("kernels")
    root = write_kernel_workspace(folder)
    rules = root / "pipeline/rules.py"
    edit(rules, "        objects = tuple(", f"{DEVICE_ACTIONS}        objects = tuple(")
    edit(rules, "for action in actions)", 'for action in actions if action.mnemonic == "CompileDevice")')
    (root / "pipeline/stages/compile_device.py").write_text(COMPILE_DEVICE)
    edit(root / "BUILD.toml", "[[command]]", f"{TWIN}\n[[command]]")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(root)
        for name, value in (("XDG_CACHE_HOME", str(folder / "cache")), ("COLUMNS", "0"), *warm_workers.items()):
            monkeypatch.setenv(name, value)
        options = [part for pair in REPORTS.items() for part in pair]
        said = StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            code = main(["build", "//:all", "--keep-going", "--verbose", "--annotations=github", *options])
        assert code == ExitCode.BUILD_FAILED
        yield Failed(root=root, said=said.getvalue())


def first_failed(said: str) -> str:
    """Which of the two that fail did so first: they run side by side."""
    return ADD if f"they share CompileDevice {ADD}, which failed" in said else NORM


def without_full_names(text: str) -> str:
    """The text, after a look at it. Files may have a kernel's full name, but no action of one."""
    for name in FULL_NAMES:
        assert f"CompileKernel {name}" not in text
        assert f"CompileDevice {name}" not in text
    return text


def test_lines_of_a_build_and_its_errors(failed: Failed) -> None:
    said = without_full_names(failed.said)
    assert f"CompileKernel {MATMUL} (shared with //:" in said
    assert f"CompileDevice {ADD} (shared with //:" in said
    assert f"3 targets were not built: they share CompileDevice {first_failed(said)}, which failed" in said
    assert f"CompileDevice {NORM} (shared with //:" in said
    assert re.search(r"critical path .* → Compile(Kernel|Device) \w+ \(", said)
    assert "::error file=BUILD.toml" in said


def test_the_live_display(failed: Failed) -> None:
    known = {field.name for field in dataclasses.fields(ActionStarted)}
    progress = Progress()
    for event in failed.events:
        if event["event"] == "action_started" and event["mnemonic"] == "CompileDevice":
            fields = {name: value for name, value in event.items() if name in known}
            progress.apply(ActionStarted(**{**fields, "shared_by": tuple(event["shared_by"])}))
    for height in (40, 3):
        lines = live_lines(progress, now=5.0, width=400, height=height, style=Style())
        shown = without_full_names("\n".join(lines))
        assert all(f"CompileDevice {name}" in shown for name in (MATMUL, ADD, NORM))


@pytest.mark.parametrize("name", ["junit.xml", "summary.md", "quality.json"])
def test_reports_for_ci_systems(failed: Failed, name: str) -> None:
    report = without_full_names((failed.root / name).read_text())
    assert f"CompileDevice {ADD} (shared with //:" in report
    assert f"CompileDevice {NORM} (shared with //:" in report


def test_the_profile(failed: Failed) -> None:
    slices = [each for each in failed.json("profile.json")["traceEvents"] if each.get("cat", "").startswith("Compile")]
    assert {each["name"] for each in slices} >= {f"CompileKernel {NORM}", f"CompileDevice {ADD}"}
    for each in slices:
        without_full_names(each["name"] + each["args"].get("message", ""))


def test_documents_have_a_title_beside_the_name_for_programs_and_no_other_text_has_that_name(failed: Failed) -> None:
    report = failed.json("report.json")
    titles = {name: result["title"] for name, result in report["action_results"].items()}
    assert titles[f"//:model CompileDevice {FULL_NAMES[1]}"] == f"//:model CompileDevice {ADD}"
    without_full_names(json.dumps([*titles.values(), report["targets"]]))
    without_full_names(json.dumps([step["title"] for step in report["critical_path"]]))
    first = first_failed(failed.said)
    for target in ("//:model", "//:twin"):
        error = report["targets"][target]["error"]
        assert error.startswith(f"{target} CompileDevice {first} failed (shared with //:")
        assert first == NORM or error.endswith("): ValueError: no such instruction")

    messages = {event["title"]: event["message"] for event in failed.events if event.get("status") == "failed"}
    assert sorted(messages) == sorted(
        f"{target} CompileDevice {name}" for target in ("//:model", "//:twin") for name in (ADD, NORM)
    )
    for title, message in messages.items():
        assert message.startswith(title)
        without_full_names(message)


@pytest.mark.parametrize(
    "arguments",
    [
        ("log", "what-ran", "--failed"),
        ("log", "critical-path"),
        ("show", "//:model", "CompileDevice"),
        ("show", "//:model", "CompileDevice", "add"),
        ("explain", "//:model"),
        ("explain", "//:model", "--build", "1"),
        ("aquery", "//:model"),
        ("build", "//:model", "--dry-run"),
        ("build", "//:model", "--from-cache-only"),
    ],
    ids=" ".join,
)
def test_commands_that_look_at_a_build(failed: Failed, arguments: tuple[str, ...], capsys: Capture) -> None:
    main(list(arguments))
    printed = capsys.readouterr()
    assert any(name in without_full_names(printed.out + printed.err) for name in (MATMUL, ADD, NORM))


def test_an_input_that_another_action_of_a_kernel_makes_is_named_by_its_title(failed: Failed, capsys: Capture) -> None:
    edit(failed.root / "pipeline/stages/compile_kernel.py", "text.upper()", 'text.upper() + "!"')
    edit(failed.root / "pipeline/rules.py", '"sm_90"', '"sm_100"')
    assert main(["explain", "//:model"]) == 0
    waits = f"CompileDevice {MATMUL} waits for //:model CompileKernel {MATMUL}, and has changed itself"
    assert waits in without_full_names(capsys.readouterr().out)
    main(["build", "//:model", "--keep-going"])
    capsys.readouterr()
    assert main(["explain", "//:model", "--build", "1"]) == 0
    assert f"1 output of //:model CompileKernel {MATMUL} changed" in without_full_names(capsys.readouterr().out)


@pytest.mark.slow
def test_the_report_page(failed: Failed, tmp_path: Path, capsys: Capture) -> None:
    page = tmp_path / "page.html"
    assert main(["report", "--events", "events.jsonl", "--to", str(page)]) == 0
    with chromium(tmp_path / "profile") as driver:
        browser = Browser(driver)
        for view in ("overview", "timeline", "actions", "targets"):
            browser.open(page, f"#{view}")
            without_full_names(browser.text("body"))
        browser.open(page, "#overview")
        assert f"CompileDevice {ADD}" in browser.text("#content")
        place = f"#actions?action=%2F%2F%3Amodel+CompileDevice+{FULL_NAMES[1]}"
        browser.open(page, place)
        assert browser.text("#action-title") == f"CompileDevice {ADD}"
        assert "no such instruction" in without_full_names("\n".join(browser.texts("#action .message")))
