"""`mlcbuild explain` of an earlier build, and of what differs from another machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.main import main
from tests.cli.kernel_workspace import asking, build, edit, enter_kernel_workspace, of

Capture = pytest.CaptureFixture[str]
Ask = Callable[..., Any]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter_kernel_workspace(tmp_path, monkeypatch)


@pytest.fixture
def built(workspace: Path, capsys: Capture) -> Path:
    build(capsys)
    return workspace


@pytest.fixture
def ask(capsys: Capture) -> Ask:
    return asking(capsys)


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


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"actions": 3}'])
def test_a_file_that_is_no_report_is_an_error(
    content: str | None, workspace: Path, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "report.json"
    if content is not None:
        path.write_text(content)
    assert main(["explain", "//:package", "--against", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
