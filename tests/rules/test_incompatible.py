"""Targets that cannot be built for their platform: wildcards skip them, and to name one is an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlcbuild.errors import WorkspaceErrors
from tests.compiler.tiny_llama import TINY_LLAMA
from tests.rules.world import analysed, write

BUILD_FILE = """\
[workspace]
name = "test"
default_platform = "@platforms//:cpu"

[configuration.gpu]
platform = ":turing"

[[model]]
name = "tiny"
config = "config.json"

[[platform]]
name = "turing"
kind = "cuda"
arch = ["sm_75"]

[[model_library]]
name = "{quantization}-{platform}"
matrix = { quantization = ["q0bf16", "q0f16"], platform = ["@platforms//:cpu", ":turing"] }
model = ":tiny"

[[filegroup]]
name = "both"
srcs = [":q0bf16-turing", ":q0f16-turing"]

[[filegroup]]
name = "host"
srcs = ["config.json"]
compatible_with = ["cpu"]
"""
NO_BFLOAT16 = "q0bf16 computes in bfloat16: sm_75 has no bfloat16, sm_80 is the first"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path, {"BUILD.toml": BUILD_FILE, "config.json": json.dumps(TINY_LLAMA)})


def skipped(root: Path, *patterns: str, configuration: str = "default") -> dict[str, str]:
    found = analysed(root, *patterns, configuration=configuration).skipped
    return {str(label): reason for label, reason in found.items()}


def test_wildcards_skip_illegal_cells_and_what_needs_them(root: Path) -> None:
    analysis = analysed(root, "//...")
    assert {str(label): reason for label, reason in analysis.skipped.items()} == {
        "//:q0bf16-turing": NO_BFLOAT16,
        "//:both": f"needs //:q0bf16-turing: {NO_BFLOAT16}",
    }
    assert "//:q0bf16-turing" not in {action.owner for action in analysis.actions}
    assert "//:q0bf16-cpu" in {action.owner for action in analysis.actions}


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (
            "//:q0bf16-turing",
            f"BUILD.toml:19:28: {NO_BFLOAT16} in //:q0bf16-turing\n  see `mlcbuild info --legal`",
        ),
        ("//:both", f"BUILD.toml:22:1: //:both cannot be built: it needs //:q0bf16-turing: {NO_BFLOAT16}"),
    ],
)
def test_a_named_target_is_an_error_with_its_place(root: Path, label: str, message: str) -> None:
    with pytest.raises(WorkspaceErrors) as caught:
        analysed(root, "//...", label)
    assert str(caught.value) == message


def test_a_target_without_a_matrix_that_is_not_legal_is_an_error(root: Path) -> None:
    table = '[[model_library]]\nname = "x"\nmodel = ":tiny"\nquantization = "q0bf16"\nplatform = ":turing"\n'
    (root / "BUILD.toml").write_text(BUILD_FILE + table)
    with pytest.raises(WorkspaceErrors) as caught:
        analysed(root, "//...")
    assert str(caught.value).startswith(f"BUILD.toml:33:16: {NO_BFLOAT16} in //:x")


def test_the_configuration_decides_for_a_single_target(root: Path) -> None:
    assert skipped(root, "//:host*") == {}
    assert skipped(root, "//:host*", configuration="gpu") == {"//:host": "not compatible with //:turing"}
    with pytest.raises(WorkspaceErrors) as caught:
        analysed(root, "//:host", configuration="gpu")
    assert str(caught.value) == ("BUILD.toml:29:19: //:host is not compatible with //:turing\n  compatible_with: cpu")


def test_other_mistakes_of_an_illegal_cell_are_told(root: Path) -> None:
    text = BUILD_FILE.replace('model = ":tiny"\n', 'model = ":tiny"\noverrides = { context_window_size = -1 }\n')
    (root / "BUILD.toml").write_text(text)
    with pytest.raises(WorkspaceErrors) as caught:
        analysed(root, "//:q0bf16-*")
    assert "context_window_size" in str(caught.value)


def test_a_part_of_an_analysis_has_what_its_targets_need(root: Path) -> None:
    analysis = analysed(root, "//...")
    (label,) = (target.label for target in analysis.requested if target.label.name == "q0f16-turing")
    part = analysis.narrowed({label})
    assert [target.label for target in part.requested] == [label]
    assert {action.owner for action in part.actions} == {"//:tiny", "//:q0f16-turing"}
