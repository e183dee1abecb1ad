"""`mlcbuild diff`: targets, configurations, revisions and builds, and IR as text."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.main import main
from tests.cli.kernel_workspace import enter_kernel_workspace
from tests.cli.library_workspace import library_workspace

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]

MORE = """
[[kernels]]
name = "other"
text = "other.txt"
level = 3
note = "short"

[configuration.loud]
defaults = { note = "loud" }
"""


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Path:
    """Two targets with kernels, of which two are equal, and two builds of the first."""
    root = enter_kernel_workspace(tmp_path, monkeypatch)
    text = (root / "BUILD.toml").read_text().replace('note = "short"\n', "")
    (root / "BUILD.toml").write_text(text + MORE)
    (root / "other.txt").write_text(
        "matmul decode,prefill first body\nadd decode other body\ngelu decode fourth body\n"
    )
    subprocess.run(["git", "init", "--quiet"], check=True, cwd=root)
    commit(root, "Begin")
    assert main(["build", "//:package", "//:other"]) == 0
    capsys.readouterr()
    return root


def commit(root: Path, message: str) -> None:
    git = ("git", "-c", "user.name=A", "-c", "user.email=a@example.com")
    for command in (("add", "--all"), ("commit", "--quiet", "--message", message)):
        subprocess.run([*git, *command], check=True, cwd=root)


def told(capsys: Capture, *arguments: str, fails: int = 0) -> str:
    capsys.readouterr()
    assert main(["diff", *arguments]) == fails
    out, err = capsys.readouterr()
    return err if fails else out


def document(capsys: Capture, *arguments: str) -> Any:
    return json.loads(told(capsys, *arguments, "--output", "json"))


def outcomes(compared: Any) -> dict[str, str]:
    """By title without the target, of actions that are not equal."""
    return {each["title"].partition(" ")[2]: each["outcome"] for each in compared["actions"]}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_two_targets_share_kernels_and_differ_in_a_parameter(built: Path, snapshot: Snapshot, capsys: Capture) -> None:
    compared = document(capsys, "//:model", "//:other")
    assert outcomes(compared) == {
        "Partition": "differs",
        "CompileKernel add (ab3a4166)": "follows",
        "CompileKernel rms_norm (eaa3df15)": "only before",
        "CompileKernel gelu (54084ea4)": "only now",
        "Link": "follows",
    }
    assert compared["equal"] == ["//:other CompileKernel 2d6b1b8e1941d5a4"]
    (partition,) = [each for each in compared["actions"] if each["mnemonic"] == "Partition"]
    kinds = {each["name"]: each["kind"] for each in partition["differences"]}
    assert kinds == {
        "target": "parameter",
        "note": "parameter",
        "text": "argument",
        "in/text/model.txt": "input",
        "in/text/other.txt": "input",
    }
    for color, suffix in (("never", ""), ("always", "-color")):
        assert main(["--color", color, "diff", "//:model", "//:other"]) == 0
        snapshot(f"diff-targets{suffix}", capsys.readouterr().out)


def test_a_revision_is_compared_with_now_before_and_after_the_build(
    built: Path, snapshot: Snapshot, capsys: Capture
) -> None:
    assert "equal: 6 actions with the same keys" in told(capsys, "//:package", "--since", "HEAD")
    edit(built / "pipeline/stages/lines.py", 'split(" ", 2)', 'split(" ", maxsplit=2)')
    edit(built / "model.txt", "second body", "2nd body")
    waiting = document(capsys, "//:package", "--since", "HEAD")
    assert {name: outcome for name, outcome in outcomes(waiting).items() if "Kernel" not in name} == {
        "Partition": "differs",
        "Link": "not known",
        "Command": "not known",
    }
    assert {outcome for name, outcome in outcomes(waiting).items() if "Kernel" in name} == {"not known"}
    assert main(["build", "//:package"]) == 0
    compared = document(capsys, "//:package", "--since", "HEAD")
    assert compared["counts"]["equal"] == 2
    (partition, kernel, *_) = compared["actions"]
    assert [each["kind"] for each in partition["differences"]] == ["implementation", "input"]
    assert partition["differences"][0]["code"] == [
        {"module": "pipeline.stages.lines", "definition": "strip", "change": "changed"}
    ]
    assert partition["differences"][1]["diff"][2:4] == ["-add decode second body", "+add decode 2nd body"]
    assert (kernel["outcome"], kernel["has_equal_outputs"]) == ("follows", False)
    text = re.sub(r"HEAD \([0-9a-f]{8}\)", "HEAD (0123abcd)", told(capsys, "//:package", "--since", "HEAD"))
    snapshot("diff-revision", text)


def test_two_revisions_are_compared_whatever_the_files_are_now(
    built: Path, snapshot: Snapshot, capsys: Capture
) -> None:
    edit(built / "pipeline/stages/lines.py", 'split(" ", 2)', 'split(" ", maxsplit=2)')
    edit(built / "model.txt", "second body", "2nd body")
    commit(built, "Edit")
    edit(built / "model.txt", "2nd body", "fourth body")
    edit(built / "BUILD.toml", 'name = "package"', 'name = "renamed"')
    compared = document(capsys, "//:package", "--since", "HEAD~1..HEAD")
    (partition,) = [each for each in compared["actions"] if each["mnemonic"] == "Partition"]
    assert [each["kind"] for each in partition["differences"]] == ["implementation", "input"]
    # No build has read the text of HEAD, and the workspace has another one.
    assert partition["differences"][1]["diff"][2:4] == ["-add decode second body", "+add decode 2nd body"]
    text = told(capsys, "//:package", "--since", "HEAD~1..HEAD")
    snapshot("diff-two-revisions", re.sub(r"\([0-9a-f]{8}\)", "(0123abcd)", text))
    backwards = document(capsys, "//:package", "--since", "HEAD..HEAD~1")
    (partition,) = [each for each in backwards["actions"] if each["mnemonic"] == "Partition"]
    assert partition["differences"][1]["diff"][2:4] == ["-add decode 2nd body", "+add decode second body"]
    assert document(capsys, "//:package", "--since", "HEAD~1..")["counts"] == compared["counts"]
    same = document(capsys, "//:package", "--since", "..HEAD")
    assert {each["outcome"] for each in same["actions"]} <= {"not known"}  # HEAD was never built
    assert "fourth body" in (built / "model.txt").read_text()


def test_a_change_without_effect_makes_the_same_outputs(built: Path, capsys: Capture) -> None:
    edit(built / "pipeline/stages/compile_kernel.py", "text.upper()", "str(text).upper()")
    assert main(["build", "//:package"]) == 0
    compared = document(capsys, "//:package", "--since", "HEAD")
    assert {each["mnemonic"]: each["has_equal_outputs"] for each in compared["actions"]} == {"CompileKernel": True}
    text = told(capsys, "//:package", "--since", "HEAD")
    assert "//:model: 3 CompileKernel differ, and make the same outputs" in text
    assert "code       pipeline.stages.compile_kernel: optimize changed" in text


def test_builds_are_compared_with_each_other_and_with_now(built: Path, capsys: Capture) -> None:
    edit(built / "BUILD.toml", "level = 2", "level = 7")
    assert main(["build", "//:package"]) == 0
    edit(built / "BUILD.toml", "level = 7", "level = 8")
    two = document(capsys, "//:model", "--build", "2", "--build", "1")
    assert outcomes(two) == {"Partition": "differs"}
    (difference,) = two["actions"][0]["differences"]
    assert difference["inside"] == [{"path": "target.level", "before": "2", "now": "7"}]
    assert two["actions"][0]["has_equal_outputs"] is True
    now = document(capsys, "//:model", "--build", "1")
    (difference,) = now["actions"][0]["differences"]
    assert difference["inside"] == [{"path": "target.level", "before": "7", "now": "8"}]
    everything = document(capsys, "--build", "2", "--build", "1")
    assert everything["counts"]["only before"] == 5, "the second build did not have //:other"


def test_configurations_and_overrides_are_compared(built: Path, capsys: Capture) -> None:
    compared = document(capsys, "//:model", "--against-config", "default", "--config", "loud")
    assert (compared["before"], compared["now"]) == ("configuration default", "configuration loud")
    (difference,) = compared["actions"][0]["differences"]
    assert (difference["name"], difference["before"], difference["now"]) == ("note", '""', '"loud"')
    back = document(capsys, "//:model", "--against-config", "loud")
    (difference,) = back["actions"][0]["differences"]
    assert (difference["before"], difference["now"]) == ('"loud"', '""')
    changed = document(capsys, "//:model", "--set", "//:model.level=9")
    (difference,) = changed["actions"][0]["differences"]
    assert difference["inside"] == [{"path": "target.level", "before": "2", "now": "9"}]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("nothing", []),
        ("alone", ["//:model"]),
        ("three", ["//:model", "//:other", "//:package"]),
        ("two-ways", ["//:model", "--since", "HEAD", "--build", "1"]),
        ("three-builds", ["--build", "1", "--build", "2", "--build", "3"]),
        ("many", ["//...", "//:model"]),
        ("no-revision", ["//:model", "--since", "nowhere"]),
        ("no-second-revision", ["//:model", "--since", "nowhere..elsewhere"]),
        ("three-dots", ["//:model", "--since", "main...HEAD"]),
        ("no-mnemonic", ["//:model", "//:other", "--mnemonic", "Compile"]),
    ],
)
@pytest.mark.usefixtures("eighty_columns")
def test_errors(name: str, arguments: list[str], snapshot: Snapshot, workspace: Path, capsys: Capture) -> None:
    snapshot(f"usage-diff-{name}", told(capsys, *arguments, fails=2))


@pytest.fixture(scope="module")
def errors_workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp("errors")
        root = enter_kernel_workspace(folder, monkeypatch)
        (root / "BUILD.toml").write_text((root / "BUILD.toml").read_text() + MORE)
        (root / "other.txt").write_text("add decode body\n")
        subprocess.run(["git", "init", "--quiet"], check=True, cwd=root)
        yield root


@pytest.fixture
def workspace(errors_workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(errors_workspace)
    monkeypatch.setenv("XDG_CACHE_HOME", str(errors_workspace.parent / "cache"))
    return errors_workspace


# IR.

LEAVES_OUT = """
from tvm import relax


def nothing(module, context):
    return relax.transform.DeadCodeElimination(["main"])(module.clone() if not "other" else _without(module))


def _without(module):
    kept = {var: function for var, function in module.functions_items() if var.name_hint != "other"}
    return type(module)(kept)
"""


def test_the_ir_of_an_edited_pass_differs_in_what_the_edit_does(
    tmp_path: Path, warm_workers: Mapping[str, str], capsys: Capture
) -> None:
    with library_workspace(tmp_path, warm_workers) as root:
        assert main(["build", "//:cpu"]) == 0
        (root / "passes/mine.py").write_text(LEAVES_OUT)
        assert main(["build", "//:cpu"]) == 0
        compared = document(capsys, "//:cpu", "--build", "2", "--ir")
        assert outcomes(compared)["Phase2"] == "differs"
        (difference,) = compared["ir"]
        assert (difference["action"], difference["path"]) == ("//:cpu Phase2", "out/module.json")
        gone = [line for line in difference["difference"][2:] if line.startswith("-")]
        made = [line for line in difference["difference"][2:] if line.startswith("+")]
        assert any("def other(" in line for line in gone)
        assert not any("def main(" in line for line in gone)
        assert made == []
        text = told(capsys, "//:cpu", "--build", "2", "--ir")
        assert text.startswith("--- //:cpu Phase2: out/module.json before\n+++ //:cpu Phase2: out/module.json now\n@@")
        bytecode = told(capsys, "//:cpu", "--build", "2", "--ir", "--mnemonic", "Lower")
        assert "-@other:" in bytecode
        (kernel,) = [each for each in compared["actions"] if each["mnemonic"] == "CompileKernel"]
        assert kernel["outcome"] == "only before"
