"""`mlcbuild affected` against the keys of whole builds at both states: it misses no target."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.main import main
from tests.cli.kernel_workspace import write_kernel_workspace

Capture = pytest.CaptureFixture[str]
Edit = Callable[[Path], None]

MORE = """
[[kernels]]
name = "other"
text = "other.txt"

[[filegroup]]
name = "texts"
srcs = ["model.txt", ":other"]

[[filegroup]]
name = "alone"
srcs = ["alone.txt"]
"""


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = write_kernel_workspace(tmp_path)
    with (root / "BUILD.toml").open("a") as file:
        file.write(MORE)
    (root / "other.txt").write_text("matmul decode,prefill first body\nsoftmax decode a body\n")
    (root / "alone.txt").write_text("alone\n")
    (root / ".gitignore").write_text("mlcbuild-out/\n.mlcbuild/\n__pycache__/\nignored.txt\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root


def replacing(path: str, old: str, new: str) -> Edit:
    def edit(root: Path) -> None:
        text = (root / path).read_text()
        assert old in text
        (root / path).write_text(text.replace(old, new))

    return edit


EDITS: Mapping[str, Edit] = {
    "file": replacing("model.txt", "second body", "2nd body"),
    "file of both": replacing("other.txt", "a body", "b body"),
    "file without an action": replacing("alone.txt", "alone", "changed"),
    "same kernels": replacing("model.txt", "add decode", "add prefill"),
    "parameter": replacing("BUILD.toml", "level = 2", "level = 3"),
    "parameter without effect": replacing("BUILD.toml", "short", "long"),
    "attribute": replacing("BUILD.toml", '["model.txt", ":other"]', '["model.txt"]'),
    "function of the split": replacing("pipeline/stages/lines.py", "if line]", "if line.strip()]"),
    "function of kernels": replacing("pipeline/stages/compile_kernel.py", "upper", "title"),
    "function of the link": replacing("pipeline/stages/link.py", '"".join', '"-".join'),
    "comment": replacing("pipeline/stages/link.py", "def run", "# run\ndef run"),
    "rule": replacing("pipeline/rules.py", '"note": target.string("note")', '"note": target.string("note") + "!"'),
    "new target": replacing("BUILD.toml", '[[filegroup]]\nname = "alone"', '[[filegroup]]\nname = "lonely"'),
}


def affected(capsys: Capture, *arguments: str) -> dict[str, str]:
    capsys.readouterr()
    assert main(["affected", "--since", "HEAD", *arguments, "--output", "json"]) == 0
    found: dict[str, str] = json.loads(capsys.readouterr().out)["targets"]
    return found


def keys_by_target(tmp_path: Path, capsys: Capture) -> dict[str, Any]:
    """The keys of each target's actions and the bytes of its outputs, after a build of everything."""
    report = tmp_path / "report.json"
    assert main(["build", "//...", "--build-report", str(report)]) == 0
    capsys.readouterr()
    document = json.loads(report.read_text())
    found: dict[str, Any] = {}
    for label, target in document["targets"].items():
        keys = {action: key for action, key in document["keys"].items() if action.startswith(f"{label} ")}
        found[label] = keys, {path: Path(path).read_bytes() for path in target["outputs"]}
    return found


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("name", EDITS)
def test_no_target_that_a_build_would_make_anew_is_missed(
    name: str, cached: bool, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    before = keys_by_target(tmp_path, capsys)
    EDITS[name](workspace)
    if not cached:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    found = affected(capsys)
    if not cached:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    after = keys_by_target(tmp_path, capsys)
    changed = {label for label in after if after[label] != before.get(label)}
    assert changed <= set(found)
    assert all(found.values())
    if cached:
        with_both = affected(capsys)
        assert changed <= set(with_both) <= set(found)
        assert set(with_both) - changed <= {"//:model"}, "early cutoff narrows where both states are cached"


def test_random_edits_together_miss_nothing(workspace: Path, tmp_path: Path, capsys: Capture) -> None:
    chance = random.Random(4)
    before = keys_by_target(tmp_path, capsys)
    for _ in range(6):
        for name in chance.sample(sorted(EDITS), 2):
            EDITS[name](workspace)
        found = affected(capsys)
        after = keys_by_target(tmp_path, capsys)
        assert {label for label in after if after[label] != before.get(label)} <= set(found)
        git(workspace, "checkout", "-q", ".")


def test_an_unchanged_workspace_affects_nothing_and_the_repository_stays_as_it_is(
    workspace: Path, capsys: Capture
) -> None:
    assert affected(capsys) == {}
    (workspace / "ignored.txt").write_text("1\n")
    assert affected(capsys) == {}
    (workspace / "staged.txt").write_text("1\n")
    git(workspace, "add", "staged.txt")
    assert affected(capsys) == {}
    status = subprocess.run(["git", "status", "--short"], cwd=workspace, capture_output=True, text=True, check=True)
    assert status.stdout == "A  staged.txt\n"


def test_labels_are_printed_for_other_commands_and_reasons_for_people(workspace: Path, capsys: Capture) -> None:
    EDITS["parameter"](workspace)
    assert main(["affected", "--since", "HEAD", "//:model", "//:texts"]) == 0
    assert capsys.readouterr().out == "//:model\n"
    assert main(["affected", "--since", "HEAD", "--output", "text"]) == 0
    assert capsys.readouterr().out == (
        "//:model  //:model Partition: target.level: 2 → 3\n//:package  needs //:model Link\n"
    )


@pytest.mark.parametrize("cached", [True, False])
def test_the_file_behind_a_symbolic_link_counts(cached: bool, workspace: Path, capsys: Capture) -> None:
    (workspace / "model.txt").rename(workspace / "real.txt")
    (workspace / "model.txt").symlink_to("real.txt")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "two")
    if cached:
        assert main(["build", "//..."]) == 0
    assert affected(capsys) == {}
    replacing("real.txt", "second body", "2nd body")(workspace)
    assert set(affected(capsys)) == {"//:model", "//:package", "//:texts"}


def test_a_revision_with_errors_affects_all(workspace: Path, capsys: Capture) -> None:
    (workspace / "BUILD.toml").write_text((workspace / "BUILD.toml").read_text() + "[[nonsense]]\n")
    git(workspace, "commit", "-qam", "two")
    git(workspace, "checkout", "-q", "HEAD~1", "--", "BUILD.toml")
    found = affected(capsys)
    assert "//:alone" in found
    assert "has errors at that revision" in found["//:alone"]


def test_a_workspace_in_a_folder_of_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    root = write_kernel_workspace(tmp_path)
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("cache/\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert affected(capsys) == {}
    EDITS["file"](root)
    assert list(affected(capsys)) == ["//:model", "//:package"]


def test_an_unknown_revision_and_no_repository_are_errors(workspace: Path, capsys: Capture) -> None:
    assert main(["affected", "--since", "nonsense"]) == 2
    assert 'there is no revision "nonsense"' in capsys.readouterr().err
