"""Rules of files and commands, and mistakes that rules see."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.engine.action import DerivedArtifact, SourceArtifact, ToolCall
from mlcbuild.errors import WorkspaceErrors
from mlcbuild.rules.analysis import with_errors_of_analysis
from mlcbuild.rules.registry import load_rules
from mlcbuild.workspace.loader import LoadErrors, load
from tests.rules.model_workspaces import TOOL
from tests.rules.world import action, analysed, write


def test_a_command_lays_inputs_by_package_and_fills_placeholders_in(tmp_path: Path) -> None:
    text = (
        TOOL
        + """
[[command]]
name = "join"
tool = ":sh"
inputs = ["b.txt", "folder", ":made"]
outputs = ["joined", "side/"]
arguments = ["-c", "cat {inputs} > {output:joined}", "{outputs}", "{input:folder}"]
environment = { LEVEL = "3" }

[[command]]
name = "made"
tool = ":sh"
outputs = ["made.txt"]
"""
    )
    files = {"a/BUILD.toml": text, "a/b.txt": "", "a/folder/x": "", "a/folder/y/z": "", "a/folder/.hidden": ""}
    analysis = analysed(write(tmp_path, files), "//a:join")
    (join,) = (each for each in analysis.actions if each.identifier == "//a:join Command")
    assert {each.path: each.artifact for each in join.inputs} == {
        "in/a/b.txt": SourceArtifact(path="a/b.txt"),
        "in/a/folder/x": SourceArtifact(path="a/folder/x"),
        "in/a/folder/y/z": SourceArtifact(path="a/folder/y/z"),
        "in/a/made.txt": DerivedArtifact(action="//a:made Command", path="out/made.txt"),
    }
    assert join.command == ToolCall(
        arguments=(
            "/bin/sh",
            "-eu",
            "-c",
            "cat in/a/b.txt in/a/folder/x in/a/folder/y/z in/a/made.txt > out/joined",
            "out/joined",
            "out/side/",
            "in/a/folder/x",
            "in/a/folder/y/z",
        )
    )
    assert join.outputs == ("out/joined", "out/side/")
    assert join.environment == (("LEVEL", "3"),)
    assert join.toolchains == ("program:/bin/sh",)


def test_a_tool_of_the_workspace_is_an_input(tmp_path: Path) -> None:
    text = """
[[tool]]
name = "own"
executable = "run.sh"
[[command]]
name = "c"
tool = ":own"
outputs = ["o"]
"""
    analysis = analysed(write(tmp_path, {"a/BUILD.toml": text, "a/run.sh": ""}), "//a:c")
    command = action(analysis, "Command")
    assert [(each.path, each.artifact) for each in command.inputs] == [("tool/run.sh", SourceArtifact(path="a/run.sh"))]
    assert command.command == ToolCall(arguments=("tool/run.sh",))
    assert command.toolchains == ()


def test_the_mistakes_that_rules_see_are_told_together_with_their_places(tmp_path: Path) -> None:
    text = (
        TOOL
        + """
[[tool]]
name = "neither"
[[command]]
name = "escapes"
tool = ":sh"
outputs = ["../o"]
[[command]]
name = "unknown-output"
tool = ":sh"
outputs = ["o"]
arguments = ["{output:p}"]
[[http_file]]
name = "scheme"
urls = ["ftp://host/x"]
[[pypi_file]]
name = "pin"
package = "p"
version = "1"
path = "x"
sha256 = "abc"
[[hf_repository]]
name = "branch"
repository = "o/n"
revision = "main"
files = ["config.json"]
"""
    )
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(write(tmp_path, {"a/BUILD.toml": text}), "//a:all")
    assert str(raised.value) == (
        "a/BUILD.toml:7:8: a tool has either `path` or `executable` in //a:neither\n"
        'a/BUILD.toml:11:11: output "../o" is not a path below the output folder in //a:escapes\n'
        'a/BUILD.toml:16:13: no output "p" in //a:unknown-output\n'
        "  known: o\n"
        'a/BUILD.toml:19:8: "ftp://host/x" is no http or https address in //a:scheme\n'
        'a/BUILD.toml:25:10: "abc" is not a SHA-256 in //a:pin\n'
        "  64 lower-case hexadecimal digits; `mlcbuild fetch --update` writes them\n"
        'a/BUILD.toml:29:12: revision "main" is not a commit in //a:branch\n'
        "  a branch or tag moves; write the 40 hexadecimal digits of the commit, or\n"
        '  branch = "main" in the place of revision: `mlcbuild fetch --update` finds its commit'
    )


def test_what_analysis_finds_of_sound_targets_is_told_with_the_errors_of_the_load(tmp_path: Path) -> None:
    text = """
[[platform]]
name = "gpu"
kind = "cuda"
arch = ["sm_9O"]
[[platform]]
name = "unknown-kind"
kind = "cdua"
[[model]]
name = "shape"
[[model_library]]
name = "needs-what-is-wrong"
model = ":shape"
quantization = "q0f16"
platform = ":unknown-kind"
"""
    rules = load_rules(tmp_path, ())
    root = write(tmp_path, {"a/BUILD.toml": text})
    with pytest.raises(LoadErrors) as raised:
        load(root, {name: rule.schema for name, rule in rules.items()}, ["//a:all"])
    assert sorted(str(label) for label in raised.value.sound.targets) == ["//a:gpu", "//a:shape"]
    together = with_errors_of_analysis(raised.value, rules)
    assert [str(error).splitlines()[0] for error in together.errors] == [
        'a/BUILD.toml:5:8: unknown GPU architecture "sm_9O" in //a:gpu',
        'a/BUILD.toml:8:8: unknown kind "cdua" in //a:unknown-kind',
        "a/BUILD.toml:10:8: a model has `source`, or `config` where only its shape is needed in //a:shape",
    ]
