"""Attributes that the command line sets: `--set LABEL.ATTRIBUTE=VALUE`."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.errors import WorkspaceErrors
from mlcbuild.workspace.loader import LoadedWorkspace, load
from tests.workspace.world import SCHEMAS, label, write

ROOT = """\
[workspace]
name = "world"

[configuration.forced]
overrides = { opt = "O1" }
"""
PACKAGE = """\
[[model]]
name = "m"
source = "m.bin"

[[model]]
name = "v1.1"
source = "m.bin"

[[library]]
name = "l"
model = ":m"
quantization = "q0f16"
opt = "O0"

[[library]]
name = "l-{quantization}"
model = ":m"
matrix = { quantization = ["q0f16", "q0f32"] }
"""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return write(tmp_path, {"BUILD.toml": ROOT, "p/BUILD.toml": PACKAGE, "p/m.bin": "", "p/other.bin": ""})


def loaded(root: Path, *overrides: str, pattern: str = "//p:all", configuration: str = "default") -> LoadedWorkspace:
    return load(root, SCHEMAS, [pattern], "p", configuration=configuration, overrides=overrides)


def errors(root: Path, *overrides: str, pattern: str = "//p:all") -> str:
    with pytest.raises(WorkspaceErrors) as caught:
        loaded(root, *overrides, pattern=pattern)
    return str(caught.value)


def test_it_takes_precedence_over_the_target_and_the_configuration(world: Path) -> None:
    for configuration in ("default", "forced"):
        found = loaded(world, "//p:l.opt=O3", configuration=configuration)
        assert found.targets[label("//p:l")].values["opt"] == "O3"


def test_it_sets_one_cell_of_a_matrix_and_also_its_axis(world: Path) -> None:
    targets = loaded(world, "//p:l-q0f16.opt=O3", "//p:l-q0f16.quantization=q4f16_1").targets
    assert targets[label("//p:l-q0f16")].values["opt"] == "O3"
    assert targets[label("//p:l-q0f16")].values["quantization"] == "q4f16_1"
    assert "opt" not in targets[label("//p:l-q0f32")].values
    assert targets[label("//p:l-q0f32")].values["quantization"] == "q0f32"


def test_the_last_one_of_an_attribute_counts(world: Path) -> None:
    found = loaded(world, ":l.opt=O3", "//p:l.opt=O1")
    assert found.targets[label("//p:l")].values["opt"] == "O1"


def test_values_are_toml_and_texts_need_no_quotes(world: Path) -> None:
    found = loaded(world, ":l.overrides={max_batch_size = 7}", ':l.model=":v1.1"', ":v1.1.source=other.bin")
    values = found.targets[label("//p:l")].values
    assert values["overrides"] == {"max_batch_size": 7}
    assert values["model"] == label("//p:v1.1")
    assert found.targets[label("//p:v1.1")].values["source"] == label("//p:other.bin")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("//p:l.opt=O9", '--set //p:l.opt=O9: unknown opt "O9" in //p:l'),
        ("//p:l.opt=3", '--set //p:l.opt=3: unknown opt "3" in //p:l'),
        ("//p:l.optt=O3", '--set //p:l.optt=O3: unknown attribute "optt" of library in //p:l'),
        ("//p:ll.opt=O3", "--set //p:ll.opt=O3: no target //p:ll"),
        ("//q:l.opt=O3", "--set //q:l.opt=O3: no package //q"),
        ("//p:l.model=:nothing", "--set //p:l.model=:nothing: no target //p:nothing"),
        ("//p:l.overrides={max_batch_size = 0}", '"max_batch_size" must be from 1 to 65536, not 0'),
        ("//p:l", '--set "//p:l" cannot be read'),
        ("//p:l.opt=", '--set "//p:l.opt=" cannot be read'),
        ("l=O3", '--set "l=O3" cannot be read'),
    ],
)
def test_each_error_names_the_option(world: Path, override: str, message: str) -> None:
    assert message in errors(world, override)


def test_setting_what_no_requested_target_needs_is_an_error(world: Path) -> None:
    assert errors(world, "//p:l.opt=O3", pattern="//p:m") == (
        "--set //p:l.opt=O3: no target that is asked for needs //p:l"
    )
    assert loaded(world, "//p:m.source=other.bin", pattern="//p:l").requested == (label("//p:l"),)
