"""Targets that are built in: every workspace has them by `@repository//:name`, beside its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.errors import WorkspaceErrors
from mlcbuild.workspace.loader import LoadedWorkspace, load
from tests.workspace.world import SCHEMAS

REPOSITORIES = {"platforms": '[[platform]]\nname = "cuda"\nkind = "cuda"\n[[platform]]\nname = "cpu"\nkind = "llvm"\n'}
ROOT = """
[workspace]
name = "w"
default_platform = "@platforms//:cpu"

[[model]]
name = "m"

[[library]]
name = "{model}-{platform}"
matrix = { model = [":m"], platform = ["@platforms//:cuda", "//own:cuda"] }
quantization = { "@platforms//:cuda" = "q4f16_1", default = "q0f32" }
"""
OWN = '[[platform]]\nname = "cuda"\nkind = "cuda"\n'


def loaded(root: Path, *patterns: str, text: str = ROOT.replace("//own:cuda", "@platforms//:cpu")) -> LoadedWorkspace:
    (root / "BUILD.toml").write_text(text)
    return load(root, SCHEMAS, patterns, repositories=REPOSITORIES)


def errors(root: Path, *patterns: str, text: str = ROOT) -> list[str]:
    with pytest.raises(WorkspaceErrors) as caught:
        loaded(root, *patterns, text=text)
    return str(caught.value).splitlines()


def test_a_built_in_platform_is_a_platform_like_any_other(tmp_path: Path) -> None:
    found = loaded(tmp_path, "//...")
    values = {str(label): found.targets[label].get("quantization") for label in found.requested[1:]}
    assert values == {"//:m-cpu": "q0f32", "//:m-cuda": "q4f16_1"}
    assert str(found.targets[found.requested[0]].platform) == "@platforms//:cpu"
    assert [str(label) for label in found.closure()] == [
        "//:m",
        "@platforms//:cpu",
        "//:m-cpu",
        "@platforms//:cuda",
        "//:m-cuda",
    ]


def test_wildcards_of_the_workspace_leave_out_what_is_built_in(tmp_path: Path) -> None:
    assert [str(label) for label in loaded(tmp_path, "//...").requested] == ["//:m", "//:m-cpu", "//:m-cuda"]


@pytest.mark.parametrize("pattern", ["@platforms//...", "@platforms//:all", "@platforms//:*"])
def test_wildcards_of_a_repository_are_its_targets(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "sub").mkdir()
    requested = loaded(tmp_path, "//:m", pattern, "-@platforms//:cpu").requested
    assert [str(label) for label in requested] == ["//:m", "@platforms//:cuda"]


def test_patterns_of_a_repository_mean_the_same_in_every_folder(tmp_path: Path) -> None:
    (tmp_path / "BUILD.toml").write_text('[workspace]\nname = "w"\n')
    (tmp_path / "sub").mkdir()
    found = load(tmp_path, SCHEMAS, ["@platforms//:cpu"], "sub", repositories=REPOSITORIES)
    assert [str(label) for label in found.requested] == ["@platforms//:cpu"]


def test_nothing_on_disk_decides_what_is_built_in(tmp_path: Path) -> None:
    found = loaded(tmp_path, "@platforms//...")
    assert not [path for path in found.observed.all if "@" in path]


def test_a_folder_with_an_at_sign_is_a_package_of_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "@platforms").mkdir()
    (tmp_path / "@platforms/BUILD.toml").write_text('[[platform]]\nname = "cuda"\nkind = "llvm"\n')
    found = loaded(tmp_path, "//...", "@platforms//:cuda")
    kinds = {str(label): found.targets[label].get("kind") for label in found.requested if label.name == "cuda"}
    assert kinds == {"//@platforms:cuda": "llvm", "@platforms//:cuda": "cuda"}


def test_a_name_that_is_only_built_in_is_suggested_with_its_label(tmp_path: Path) -> None:
    text = ROOT.replace("//own:cuda", ":cpu")
    assert errors(tmp_path, "//...", text=text) == [
        'BUILD.toml:11:61: no target //:cpu, the "platform" of //:{model}-{platform}',
        '  // has: m, m-cpu, m-cuda        did you mean "m-cpu"?',
        '  did you mean "@platforms//:cpu", which is built in?',
    ]


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("@platform//:x", ["no repository @platform", 'built in: @platforms        did you mean "@platforms"?']),
        ("@platform//...", ["no packages below @platform//"]),
        ("@platforms//x:x", ["no package @platforms//x", "@platforms// has the targets of the repository"]),
        ("@platforms//:cud", ["no target @platforms//:cud", '@platforms// has: cpu, cuda        did you mean "cuda"?']),
    ],
)
def test_errors_name_the_repository(tmp_path: Path, pattern: str, told: list[str]) -> None:
    found = errors(tmp_path, pattern, text='[workspace]\nname = "w"\n')
    assert len(found) == len(told)
    assert all(part in line for part, line in zip(told, found, strict=True))
