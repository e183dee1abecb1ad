"""What a name means where a target and a file or folder have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workspace.world import ROOT, errors_of, load_world, write

TABLES = '[[model]]\nname = "llama"\n[[model]]\nname = "user"\nsource = "{}"\n'


def world(root: Path, source: str, *, folder: bool = False, package: str = "models") -> Path:
    write(root, {"BUILD.toml": ROOT, f"{package}/BUILD.toml": TABLES.format(source)})
    if folder:
        (root / package / "llama").mkdir()
    return root


@pytest.mark.parametrize("source", ["llama", ":llama", "//models:llama"])
def test_a_name_that_only_a_target_has_is_the_target(tmp_path: Path, source: str) -> None:
    loaded = load_world(world(tmp_path, source), "//models:user")
    assert [str(label) for label in loaded.closure()] == ["//models:llama", "//models:user"]


@pytest.mark.parametrize("source", [":llama", "//models:llama"])
def test_a_name_with_a_colon_is_the_target_whatever_lies_there(tmp_path: Path, source: str) -> None:
    loaded = load_world(world(tmp_path, source, folder=True), "//models:user")
    assert [str(label) for label in loaded.closure()] == ["//models:llama", "//models:user"]


def test_a_bare_name_that_could_be_either_is_an_error_that_says_what_to_write(tmp_path: Path) -> None:
    assert errors_of(world(tmp_path, "llama", folder=True), "//models:user") == (
        'models/BUILD.toml:5:10: "llama" is both the target //models:llama and the folder models/llama '
        'as the "source" of //models:user\n'
        '  to name the target, write ":llama"\n'
        "  to name what lies there, give the target another name"
    )


def test_a_target_named_as_its_own_source_is_told_of_both(tmp_path: Path) -> None:
    write(tmp_path, {"BUILD.toml": f'{ROOT}[[model]]\nname = "llama"\nsource = "llama"\n', "llama/weights": ""})
    told = errors_of(tmp_path, "//:llama")
    assert '"llama" is both the target //:llama and the folder llama as the "source" of //:llama' in told
