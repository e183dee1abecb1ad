"""`mlcbuild explain`: each reason is told after a change that is exactly it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.main import main
from tests.cli.kernel_workspace import build, edit, of
from tests.durations import without_times

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]
Ask = Callable[..., Any]


def test_a_changed_file_is_shown_with_its_lines(built: Path, ask: Ask, capsys: Capture) -> None:
    edit(built / "model.txt", "second body", "other body")
    partition = of(ask(), "Partition")
    assert partition["what"] == "would run"
    (difference,) = partition["differences"]
    assert (difference["kind"], difference["made_by"]) == ("input", "model.txt")
    assert difference["diff"][1:] == [
        " matmul decode,prefill first body",
        "-add decode second body",
        "+add decode other body",
        " rms_norm prefill third body",
    ]
    build(capsys)
    after = ask()
    assert of(after, "Partition")["what"] == "ran"
    assert of(after, "Partition")["differences"] == [difference]


def test_a_changed_parameter_is_shown_with_both_values(built: Path, ask: Ask, capsys: Capture) -> None:
    edit(built / "BUILD.toml", "level = 2", "level = 3")
    for _ in range(2):
        (difference,) = of(ask(), "Partition")["differences"]
        assert (difference["kind"], difference["name"]) == ("parameter", "target")
        assert difference["inside"] == [{"path": "target.level", "before": "2", "now": "3"}]
        build(capsys)


def test_a_long_parameter_is_shown_by_what_differs_in_it(built: Path, ask: Ask, capsys: Capture) -> None:
    edit(built / "BUILD.toml", "short", "x" * 300)
    build(capsys)
    edit(built / "BUILD.toml", "x" * 300, "x" * 299 + "y")
    (difference,) = of(ask(), "Partition")["differences"]
    assert difference["inside"] == [{"path": "note", "before": f'"{"x" * 300}"', "now": f'"{"x" * 299}y"'}]


def test_a_changed_toolchain_is_named(built: Path, ask: Ask, capsys: Capture) -> None:
    tool = built.parent / "join.sh"
    tool.write_text(tool.read_text() + "# another release\n")
    for _ in range(2):
        document = ask()
        assert [action["mnemonic"] for action in document["actions"]] == ["Command"]
        (difference,) = of(document, "Command")["differences"]
        assert (difference["kind"], difference["name"]) == ("toolchain", f"program:{tool}")
        assert difference["before"] != difference["now"]
        build(capsys)


def test_the_function_that_changed_is_named_though_another_module_has_it(
    built: Path, ask: Ask, capsys: Capture
) -> None:
    edit(built / "pipeline/stages/lines.py", 'split(" ", 2)', 'split(" ", maxsplit=2)')
    for _ in range(2):
        (difference,) = of(ask(), "Partition")["differences"]
        assert difference["kind"] == "implementation"
        assert difference["code"] == [{"module": "pipeline.stages.lines", "definition": "strip", "change": "changed"}]
        build(capsys)


def test_new_and_removed_functions_are_named_and_comments_are_no_change(built: Path, ask: Ask) -> None:
    lines = built / "pipeline/stages/lines.py"
    edit(lines, "def unused():", "# a comment\ndef added():")
    (difference,) = of(ask(), "Partition")["differences"]
    assert [(change["definition"], change["change"]) for change in difference["code"]] == [
        ("added", "new"),
        ("unused", "gone"),
    ]
    edit(lines, "def added():", "def unused():")
    assert ask()["build"] != "now"


def test_a_changed_kernel_is_named_with_the_functions_that_use_it(built: Path, ask: Ask, capsys: Capture) -> None:
    edit(built / "model.txt", "first body", "another body")
    build(capsys)
    after = ask()
    (kernel,) = of(after, "Partition")["kernels"]
    assert kernel["before"].startswith("matmul (")
    assert kernel["now"].startswith("matmul (")
    assert kernel["before"] != kernel["now"]
    assert kernel["functions"] == ["decode", "prefill"]
    assert of(after, "CompileKernel")["title"] == f"//:model CompileKernel {kernel['now']}"


def test_a_new_kernel_and_one_that_is_gone_are_told_apart(built: Path, ask: Ask, capsys: Capture) -> None:
    edit(built / "model.txt", "rms_norm prefill third body", "softmax decode third body")
    build(capsys)
    found = of(ask(), "Partition")["kernels"]
    assert [(kernel["before"].partition(" ")[0], kernel["now"].partition(" ")[0]) for kernel in found] == [
        ("", "softmax"),
        ("rms_norm", ""),
    ]


def test_code_that_makes_the_same_bytes_ends_the_rebuild_and_the_explanation(
    built: Path, ask: Ask, capsys: Capture
) -> None:
    edit(built / "pipeline/stages/split.py", "sort_keys=True", "sort_keys=bool(1)")
    assert [action["what"] for action in ask()["actions"]] == ["would run", "waits", "waits"]
    build(capsys)
    (partition,) = ask()["actions"]
    assert (partition["mnemonic"], partition["what"], partition["kernels"]) == ("Partition", "ran", [])


def test_kernels_that_are_gained_and_lost_are_told_with_their_functions(built: Path, ask: Ask, capsys: Capture) -> None:
    edit(built / "model.txt", "add decode second body\n", "")
    build(capsys)
    (lost,) = of(ask(), "Partition")["kernels"]
    assert (lost["before"].partition(" (")[0], lost["now"], lost["functions"]) == ("add", "", ["decode"])
    with (built / "model.txt").open("a") as file:
        file.write("softmax prefill fourth body\n")
    build(capsys)
    (gained,) = of(ask(), "Partition")["kernels"]
    assert (gained["before"], gained["now"].partition(" (")[0], gained["functions"]) == ("", "softmax", ["prefill"])


CODE = "pipeline/stages/lines.py"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("def fields", "LIMIT = 2\n\n\ndef fields", [("LIMIT", "new")]),
        ("def unused", "class Row:\n    def first(self):\n        return 1\n\n\ndef unused", [("Row", "new")]),
        ("def fields", "import string\n\n\ndef fields", [("", "changed")]),
        ("    return 1\n", '    """What it is for."""\n    # A reason.\n    return (1)\n', []),
    ],
)
def test_every_part_of_a_module_is_told(built: Path, ask: Ask, old: str, new: str, told: list[Any]) -> None:
    edit(built / CODE, old, new)
    document = ask()
    if not told:
        assert document["build"] != "now", "comments, docstrings and format are no change"
        return
    code = of(document, "Partition")["differences"][0]["code"]
    assert [(each["definition"], each["change"]) for each in code][: len(told)] == told


def test_a_module_that_a_stage_begins_to_import_is_told(built: Path, ask: Ask) -> None:
    (built / "pipeline/stages/words.py").write_text("def words(text):\n    return text.split()\n")
    edit(built / CODE, "def fields", "from pipeline.stages.words import words\n\n\ndef fields")
    (difference,) = of(ask(), "Partition")["differences"]
    assert {"module": "pipeline.stages.words", "definition": "", "change": "new"} in difference["code"]


# What a target declares, one row a kind: the edit of BUILD.toml or of the rule, the action, and its differences.
DECLARED: dict[str, tuple[str, str, str, str, list[tuple[str, str, bool, bool]]]] = {
    "variable that is new": (
        "BUILD.toml",
        'tool = ":join"',
        'tool = ":join"\nenvironment = { LEVEL = "1" }',
        "Command",
        [("environment", "LEVEL", False, True)],
    ),
    "variable of the configuration": (
        "BUILD.toml",
        "[[tool]]",
        '[configuration.default]\nenvironment = { LEVEL = "1" }\n\n[[tool]]',
        "Command",
        [("environment", "LEVEL", False, True)],
    ),
    "argument": (
        "BUILD.toml",
        'arguments = ["{inputs}", "{outputs}"]',
        'arguments = ["{inputs}", "{outputs}", "-v"]',
        "Command",
        [("argument", "3", False, True)],
    ),
    "input that is new": (
        "BUILD.toml",
        'inputs = [":model"]',
        'inputs = [":model", "model.txt"]\nmnemonic = "Command"',
        "Command",
        [("argument", "2", True, True), ("argument", "3", False, True), ("input", "in/model.txt", False, True)],
    ),
    "output": (
        "BUILD.toml",
        'outputs = ["package.txt"]',
        'outputs = ["joined.txt"]',
        "Command",
        [
            ("argument", "2", True, True),
            ("output", "out/joined.txt", False, True),
            ("output", "out/package.txt", True, False),
        ],
    ),
    "plug-in that is new": (
        "pipeline/rules.py",
        '"Link",\n        "pipeline.stages.link:run",',
        '"Link",\n        "pipeline.stages.link:run",\n        plugins={"lines": "pipeline.stages.lines:fields"},',
        "Link",
        [("implementation", "", True, True), ("plug-in", "lines", False, True)],
    ),
    "toolchain that is new": (
        "pipeline/rules.py",
        '"Link",\n        "pipeline.stages.link:run",',
        '"Link",\n        "pipeline.stages.link:run",\n        toolchains=("ld",),',
        "Link",
        [("toolchain", "ld", False, True)],
    ),
    "parameter that is new": (
        "pipeline/rules.py",
        '"note": target.string("note")}',
        '"note": target.string("note"), "more": 1}',
        "Partition",
        [("parameter", "more", False, True)],
    ),
    "stage": (
        "pipeline/rules.py",
        '"pipeline.stages.link:run"',
        '"pipeline.stages.link:again"',
        "Link",
        [("function", "", True, True)],
    ),
}


@pytest.mark.parametrize("name", DECLARED)
def test_each_part_of_a_declaration_is_told(name: str, built: Path, ask: Ask) -> None:
    path, old, new, mnemonic, told = DECLARED[name]
    edit(built / path, old, new)
    found = of(ask(), mnemonic)["differences"]
    assert [(each["kind"], each["name"], each["before"] is not None, each["now"] is not None) for each in found] == told


def test_another_toolchain_of_the_same_name_is_told(built: Path, ask: Ask) -> None:
    """A `tool` that leads to another program: both programs are named."""
    other = built.parent / "join-2.sh"
    other.write_text((built.parent / "join.sh").read_text())
    other.chmod(0o755)
    edit(built / "BUILD.toml", str(built.parent / "join.sh"), str(other))
    found = of(ask(), "Command")["differences"]
    assert [(each["kind"], each["name"].rpartition("/")[2]) for each in found] == [
        ("argument", "0"),
        ("toolchain", "join-2.sh"),
        ("toolchain", "join.sh"),
    ]


def test_another_version_of_a_distribution_that_a_stage_imports_is_told(
    built: Path, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    packages = tmp_path / "site"
    monkeypatch.syspath_prepend(str(packages))

    def install(version: str) -> None:
        shutil.rmtree(packages, ignore_errors=True)
        information = packages / f"joiner_of_lines-{version}.dist-info"
        information.mkdir(parents=True)
        (packages / "joiner_of_lines.py").write_text(f"VERSION = {version!r}\n")
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: joiner-of-lines\nVersion: {version}\n")
        (information / "RECORD").write_text(f"joiner_of_lines.py,,\n{information.name}/METADATA,,\n")

    install("1.0")
    link = built / "pipeline/stages/link.py"  # It does not run the import: workers know only what is installed.
    link.write_text(link.read_text() + "\n\ndef join():\n    import joiner_of_lines\n")
    build(capsys)
    install("2.0")
    (difference,) = of(ask(), "Link")["differences"]
    assert difference["kind"] == "implementation"
    assert [(each["part"], each["change"]) for each in difference["code"]] == [
        ("distribution joiner-of-lines", "changed")
    ]


def test_a_result_that_went_and_a_first_build_are_reasons(workspace: Path, ask: Ask, capsys: Capture) -> None:
    assert of(ask(), "Partition")["why"] == "the first build here"
    build(capsys)
    assert main(["cache", "rm", "//:package"]) == 0
    assert "the disk cache has the result no longer" in of(ask(), "Command")["why"]


def test_what_waits_says_for_what_and_whether_it_changed_itself(built: Path, ask: Ask) -> None:
    edit(built / "pipeline/stages/compile_kernel.py", "upper", "title")
    edit(built / "pipeline/stages/link.py", "each.read_text() for", 'each.read_text() + "" for')
    link = of(ask(), "Link")
    assert link["what"] == "waits"
    assert link["waits_for"].startswith("//:model CompileKernel ")
    assert [change["definition"] for change in link["differences"][0]["code"]] == ["run"]


@pytest.mark.parametrize("name", ["now", "past", "first"])
def test_explanations_for_people(name: str, workspace: Path, snapshot: Snapshot, capsys: Capture) -> None:
    if name != "first":
        build(capsys)
        edit(workspace / "model.txt", "first body", "another body")
        edit(workspace / "BUILD.toml", "level = 2", "level = 3")
        edit(workspace / "pipeline/stages/split.py", "sort_keys=True", "sort_keys=bool(1)")
        edit(workspace / "pipeline/stages/compile_kernel.py", "upper", "title")
    if name == "past":
        build(capsys)
    assert main(["explain", "//:package"]) == 0
    out, err = capsys.readouterr()
    snapshot(f"explain-{name}", _without_moment(out + err))


def _without_moment(text: str) -> str:
    import re

    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d, [0-9a-f]{8}", "MOMENT", without_times(text))


@pytest.mark.parametrize("command", ["aquery", "explain", "affected"])
def test_help(command: str, snapshot: Snapshot, capsys: Capture) -> None:
    assert main([command, "--help"]) == 0
    snapshot(f"help-{command}", capsys.readouterr().out)


@pytest.mark.parametrize("command", ["aquery", "explain"])
def test_nothing_is_written_where_nothing_was_built(command: str, workspace: Path, capsys: Capture) -> None:
    assert main([command, "//:package"]) == 0
    assert not (workspace / ".mlcbuild").exists()
