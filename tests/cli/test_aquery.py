"""`mlcbuild aquery`: the actions of targets, with their keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.main import main
from tests.cli.kernel_workspace import build, edit

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


def actions_of(capsys: Capture, expression: str) -> Any:
    capsys.readouterr()
    assert main(["aquery", expression, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_actions_of_kernels_come_from_the_cached_manifest(workspace: Path, capsys: Capture) -> None:
    before = actions_of(capsys, "deps(//:package)")
    assert [action["mnemonic"] for action in before["actions"]] == ["Partition", "Link", "Command"]
    assert before["not_known"] == [{"announced_by": "//:model Partition"}]
    build(capsys)
    after = actions_of(capsys, "deps(//:package)")
    assert [action["mnemonic"] for action in after["actions"]].count("CompileKernel") == 3
    assert after["not_known"] == []
    assert {action["state"] for action in after["actions"]} == {"up to date"}


def test_keys_are_those_of_the_build(workspace: Path, tmp_path: Path, capsys: Capture) -> None:
    report = tmp_path / "report.json"
    build(capsys, "--build-report", str(report))
    keys = json.loads(report.read_text())["keys"]
    assert len(keys) == 6
    assert {each["action"]: each["key"] for each in actions_of(capsys, "deps(//:package)")["actions"]} == keys
    (workspace / ".mlcbuild/last-build.json").unlink()
    assert {each["action"]: each["key"] for each in actions_of(capsys, "deps(//:package)")["actions"]} == keys


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("//:package", ["Command"]),
        ("//:model", ["CompileKernel", "CompileKernel", "CompileKernel", "Link", "Partition"]),
        ("mnemonic('^Link$', deps(//:package))", ["Link"]),
        ("inputs('model.txt', deps(//:package))", ["Partition"]),
        ("inputs('//:model Link', deps(//:package))", ["Command"]),
        ("outputs('\\.o$', mnemonic(Compile, deps(//:package)))", ["CompileKernel"] * 3),
        ("outputs('\\.o$', inputs('package', deps(//:package)))", []),
    ],
)
def test_actions_are_filtered(expression: str, expected: list[str], built: Path, capsys: Capture) -> None:
    found = actions_of(capsys, expression)["actions"]
    assert sorted(action["mnemonic"] for action in found) == expected


def test_a_filter_of_actions_inside_of_another_function_is_an_error(workspace: Path, capsys: Capture) -> None:
    assert main(["aquery", "deps(mnemonic(Link, //:model))"]) == 2
    assert "mnemonic(…) stands inside" in capsys.readouterr().err


def test_actions_for_people(built: Path, tmp_path: Path, snapshot: Snapshot, capsys: Capture) -> None:
    edit(built / "model.txt", "second", "other")
    assert main(["aquery", "deps(//:package)"]) == 0
    out, err = capsys.readouterr()
    snapshot("aquery", _with_short_digests((out + err).replace(str(tmp_path), "/TMP")))


def _with_short_digests(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{16}([0-9a-f]{48})?\b", "DIGEST", text)
