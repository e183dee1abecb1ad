"""What shells are told of commands, options and labels."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.small_workspace import enter_small_workspace


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter_small_workspace(tmp_path, monkeypatch)


def complete(words: str, **more: str) -> list[str]:
    environment = {
        **os.environ,
        "_MLCBUILD_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        **more,
    }
    done = subprocess.run(
        [sys.executable, "-m", "mlcbuild.cli.main"], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout.split()


def test_completion_of_commands_and_options(workspace: Path) -> None:
    assert "build" in complete("mlcbuild b")
    assert "--keep-going" in complete("mlcbuild build --k")
    assert complete("mlcbuild build --config r") == ["release"]


def test_completion_of_labels(workspace: Path) -> None:
    assert complete("mlcbuild build //") == ["//models:all", "//models/..."]
    assert complete("mlcbuild build //mo") == ["//models:all", "//models/..."]
    assert complete("mlcbuild build //models:s") == ["//models:shapes"]
    assert complete("mlcbuild run :a") == [":all-data", ":all"]


def test_the_name_of_the_workspace_is_no_target(workspace: Path) -> None:
    name = tomllib.loads((workspace / "BUILD.toml").read_text())["workspace"]["name"]
    assert complete(f"mlcbuild build :{name}") == complete(f"mlcbuild build //:{name}") == []


def test_names_behind_lines_of_an_array_are_offered(workspace: Path) -> None:
    head = (workspace / "BUILD.toml").read_text()
    lines = [
        "",
        "[configuration.other]",
        'name = "none"',
        "",
        "[[tensorrt_engine]]",
        "sizes = [",
        "  [1, 8, 32],",
        "  [4]",
    ]
    lines += ["]", 'name = "engine"', "", "[[filegroup]]", "name = 'behind'", ""]
    (workspace / "BUILD.toml").write_text(head + "\n".join(lines))
    assert complete("mlcbuild build //:engin") == ["//:engine"]
    assert complete("mlcbuild build //:behin") == ["//:behind"]
    assert complete("mlcbuild build //:non") == []


def test_completion_in_bash_whose_words_end_at_colons(workspace: Path) -> None:
    assert complete("mlcbuild query @platforms//:cu") == ["@platforms//:cuda"]
    assert complete("mlcbuild query @platforms// : cu") == ["cuda"]
    assert complete("mlcbuild build //models : s") == ["shapes"]
    assert complete("mlcbuild build //models :") == ["shapes", "all"]
    assert complete("mlcbuild build -- -//models : s") == ["shapes"]
    assert complete("mlcbuild run : a") == ["all-data", "all"]
    assert complete("mlcbuild build //models : shapes //mo") == ["//models:all", "//models/..."]


def test_scripts_for_completion_are_shown(workspace: Path) -> None:
    environment = {**os.environ, "SHELL": "/bin/bash", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mlcbuild.cli.main", "--show-completion", "bash"],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert "complete -o default -F _mlcbuild_completion mlcbuild" in done.stdout
