"""The common platforms that are built in, of each kind."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from mlcbuild.errors import WorkspaceErrors
from mlcbuild.rules import repositories as module
from mlcbuild.rules.backend import backends
from mlcbuild.rules.repositories import repositories
from mlcbuild.system_programs import linker_name, program_path
from tests.rules.world import analysed, write

PROJECT = Path(__file__).parents[2]
SHAPE = (PROJECT / "models/tinyllama-1.1b/config.json").read_text(encoding="utf-8")
ROOT = """
[workspace]
name = "test"

[[model]]
name = "model"
config = "config.json"

[[platform]]
name = "own-cuda"
kind = "cuda"
arch = ["sm_80", "sm_90"]

[[platform]]
name = "own-cpu"
kind = "cpu"
cpu = "x86-64-v3"

[[model_library]]
name = "library"
model = ":model"
quantization = "q4f16_1"
platform = "PLATFORM"
"""


def actions(root: Path, platform: str) -> list[dict[str, object]]:
    """All of a library's actions, without the name of the workspace's folder."""
    write(root, {"config.json": SHAPE, "BUILD.toml": ROOT.replace("PLATFORM", platform)})
    return [dataclasses.asdict(found) for found in analysed(root, "//:library").actions]


@pytest.mark.parametrize("name", ["cuda", "cpu"])
def test_actions_are_those_of_the_same_platform_written_out(tmp_path: Path, name: str) -> None:
    built_in, own = actions(tmp_path, f"@platforms//:{name}"), actions(tmp_path, f":own-{name}")
    assert len(built_in) > 5
    assert repr(built_in) == repr(own)


@pytest.mark.parametrize("name", [name for backend in backends().values() for name in backend.platforms])
def test_each_has_values_that_its_kind_accepts(tmp_path: Path, name: str) -> None:
    write(tmp_path, {})
    try:
        analysed(tmp_path, f"@platforms//:{name}")
    except WorkspaceErrors as errors:
        if program_path(linker_name("aarch64")):
            raise
        told = [error.message for error in errors.errors]
        assert told == [f'this machine has no linker for the host "aarch64-linux-gnu" in @platforms//:{name}']


def test_two_kinds_cannot_have_a_platform_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = backends()["cpu"]
    monkeypatch.setattr(module, "backends", lambda: {"cpu": cpu, "other": cpu})
    with pytest.raises(ValueError, match="two backends have a common platform 'cpu'"):
        repositories()


def test_the_page_lists_all_of_them() -> None:
    page = (PROJECT / "docs/workspace.md").read_text(encoding="utf-8")
    for kind, backend in backends().items():
        for name, values in backend.platforms.items():
            shown = ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
            assert f"| `@platforms//:{name}` | {kind} | `{shown}` |" in page
