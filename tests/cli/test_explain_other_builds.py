"""`mlcbuild explain` of an earlier build, and of what differs from another machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main
from tests.cli.kernel_workspace import build, edit, of

Capture = pytest.CaptureFixture[str]
Ask = Callable[..., Any]


def test_a_build_before_the_last_is_explained(built: Path, ask: Ask, capsys: Capture) -> None:
    edit(built / "BUILD.toml", "level = 2", "level = 3")
    build(capsys)
    edit(built / "model.txt", "first body", "another body")
    build(capsys)
    assert of(ask("--build", "1"), "Partition")["differences"][0]["kind"] == "input"
    assert of(ask("--build", "2"), "Partition")["differences"][0]["kind"] == "parameter"
    assert len(ask("--build", "3")["actions"]) == 6


def test_another_machine_is_compared_by_its_actions(
    built: Path, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert main(["aquery", "deps(//:package)", "--output", "json"]) == 0
    there = tmp_path / "there.json"
    there.write_text(capsys.readouterr().out)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another cache"))
    edit(built / "BUILD.toml", "level = 2", "level = 3")
    edit(built / "pipeline/stages/lines.py", 'split(" ", 2)', 'split(" ", maxsplit=2)')
    edit(built / "pipeline/stages/compile_kernel.py", "upper", "title")
    build(capsys)
    document = ask("--against", str(there))
    partition = of(document, "Partition")
    assert [each["kind"] for each in partition["differences"]] == ["implementation", "parameter"]
    assert partition["differences"][0]["code"][0]["definition"] == "strip"
    kernels = [action for action in document["actions"] if action["mnemonic"] == "CompileKernel"]
    assert len(kernels) == 3
    assert document["following"] == ["//:model Link", "//:package Command"]
    assert document["equal"] == 0


def test_another_machine_is_compared_by_its_build_report(
    built: Path, ask: Ask, tmp_path: Path, capsys: Capture
) -> None:
    report = tmp_path / "report.json"
    build(capsys, "--recache", "--build-report", str(report))
    edit(built / "BUILD.toml", "level = 2", "level = 3")
    build(capsys)
    document = ask("--against", str(report))
    assert of(document, "Partition")["differences"][0]["inside"][0]["path"] == "target.level"
    assert document["equal"] == 5
    assert main(["explain", "//:package", "--against", str(report)]) == 0
    assert "5 actions have the same key on both machines" in capsys.readouterr().out


NO_REPORTS = {
    "absent": None,
    "half": "{",
    "a list": "[]",
    "empty": "{}",
    "a number of actions": '{"actions": 3}',
    "no keys": '{"actions": {"total": 3}, "keys": ["x"]}',
    "other actions": '{"actions": [{"key": "x", "action": "//:package Command"}]}',
    "an odd listing": '{"actions": [], "code": {"implementations": 3}}',
    "deep": "[" * 100_000,
    "not text": "\udcff\udcfe",
}


@pytest.mark.parametrize("name", NO_REPORTS)
def test_a_file_that_is_no_report_is_an_error(name: str, workspace: Path, tmp_path: Path, capsys: Capture) -> None:
    path, content = tmp_path / "report.json", NO_REPORTS[name]
    if content is not None:
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
    code, said = told(capsys, "//:package", path)
    assert code == ExitCode.COMMAND_LINE
    if content is None:
        assert said == f"error: {path} cannot be read: No such file or directory\n"
        return
    assert said.splitlines() == [
        f"error: {path} has no keys of actions",
        "  give what `mlcbuild build --build-report FILE` wrote on the other machine,",
        "  or the output of `mlcbuild aquery 'deps(…)' --output json`",
    ]


def told(capsys: Capture, target: str, path: Path) -> tuple[int, str]:
    """The exit code, and what is said on standard error."""
    capsys.readouterr()
    code = main(["explain", target, "--against", str(path)])
    return code, capsys.readouterr().err


def test_a_folder_and_the_event_log_are_no_reports(built: Path, tmp_path: Path, capsys: Capture) -> None:
    assert told(capsys, "//:package", tmp_path) == (2, f"error: {tmp_path} cannot be read: Is a directory\n")
    events = tmp_path / "events.jsonl"
    build(capsys, "--events", str(events))
    code, said = told(capsys, "//:package", events)
    assert code == ExitCode.COMMAND_LINE
    assert f"error: {events} has no keys of actions" in said


def test_a_report_without_the_target_says_which_it_has(built: Path, tmp_path: Path, capsys: Capture) -> None:
    report = tmp_path / "report.json"
    assert main(["build", "//:model", "--build-report", str(report)]) == 0
    code, said = told(capsys, "//:package", report)
    assert code == ExitCode.COMMAND_LINE
    assert said.splitlines() == [
        f"error: {report} has no action of //:package",
        "  it has those of //:model",
        "  give a report of a build of these targets, in a copy of this workspace",
    ]
    code, said = told(capsys, "//:all", report)
    assert code == ExitCode.OK
    assert said == f"note: {report} has no action of //:package\n"


def test_a_report_of_another_workspace_is_told_by_its_targets(built: Path, tmp_path: Path, capsys: Capture) -> None:
    there, report = tmp_path / "elsewhere", tmp_path / "report.json"
    there.mkdir()
    commands = "".join(
        f'[[command]]\nname = "{name}"\ntool = ":sh"\narguments = ["-c", "echo > {{outputs}}"]\noutputs = ["x"]\n'
        for name in ("five", "four", "one", "three", "two")
    )
    (there / "BUILD.toml").write_text(
        f'[workspace]\nname = "other"\n[[tool]]\nname = "sh"\npath = "/bin/sh"\n{commands}'
    )
    assert main(["-C", str(there), "build", "//...", "--build-report", str(report)]) == 0
    code, said = told(capsys, "//:package", report)
    assert code == ExitCode.COMMAND_LINE
    assert "  it has those of //:five, //:four, //:one, and 2 more\n" in said


def test_a_report_of_a_build_that_never_began_has_nothing_to_compare_with(
    built: Path, tmp_path: Path, capsys: Capture
) -> None:
    report = tmp_path / "report.json"
    assert main(["build", "//:nobody", "--build-report", str(report)]) == ExitCode.ANALYSIS_FAILED
    code, said = told(capsys, "//:package", report)
    assert code == ExitCode.COMMAND_LINE
    assert f"error: {report} has no action of //:package\n  its build ended before any action was known\n" in said


def test_keys_by_another_digest_function_are_not_compared(built: Path, tmp_path: Path, capsys: Capture) -> None:
    report = tmp_path / "report.json"
    edit(built / "BUILD.toml", 'name = "example"\n', 'name = "example"\ndigest = "sha256"\n')
    build(capsys, "--build-report", str(report))
    edit(built / "BUILD.toml", 'digest = "sha256"\n', "")
    code, said = told(capsys, "//:package", report)
    assert code == ExitCode.COMMAND_LINE
    assert f"error: {report} has keys of sha256, and this workspace those of blake3: all differ" in said


def test_one_action_has_and_several_have_a_key(built: Path, tmp_path: Path, capsys: Capture) -> None:
    report = tmp_path / "report.json"
    build(capsys, "--build-report", str(report))
    document = json.loads(report.read_text())
    kept = "//:package Command"
    report.write_text(json.dumps({**document, "keys": {kept: document["keys"][kept]}}))
    assert main(["explain", "//:package", "--against", str(report)]) == 0
    assert capsys.readouterr().out == "1 action has the same key on both machines; 5 without a key in the report\n"


def test_an_action_that_failed_is_not_called_the_first_build(workspace: Path, ask: Ask, capsys: Capture) -> None:
    edit(workspace / "pipeline/stages/compile_kernel.py", "return text.upper()", "return 1 / 0")
    for _ in range(2):
        assert main(["build", "//:package", "--keep-going"]) != 0
        capsys.readouterr()
    failed = [each for each in ask()["actions"] if each["mnemonic"] == "CompileKernel"]
    assert [each["why"] for each in failed] == ["it failed when it was last built here"] * 3
    again, first = (
        {each["why"] for each in ask("--build", number)["actions"] if each["mnemonic"] == "CompileKernel"}
        for number in "12"
    )
    assert again == {"it failed when it was last built here"}
    assert "it failed when it was last built here" not in first
