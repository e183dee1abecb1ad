"""Values that depend on the platform or the configuration, and which of several wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.workspace.target import Target
from tests.workspace.world import ROOT, errors_of, label, load_world, write

ROOT_WITH_CONFIGURATIONS = (
    ROOT
    + """\
default_platform = "//p:cpu"

[configuration.gpu]
platform = "//p:gpu"
environment = { MODE = "fast" }

[configuration.debug]
defaults = { opt = "O0", notes = { checks = true } }

[configuration.forced]
overrides = { opt = { "//p:gpu" = "O1", default = "O0" }, model = ":root-model" }

[configuration.partly]
overrides = { opt = { "//p:gpu" = "O1" } }

[[model]]
name = "root-model"
"""
)
PLATFORMS = '[[platform]]\nname = "cpu"\nkind = "llvm"\n[[platform]]\nname = "gpu"\nkind = "cuda"\n'


def library(root: Path, *lines: str, configuration: str = "default") -> Target:
    text = '[[model]]\nname = "m"\n[[library]]\nname = "l"\nquantization = "q0f16"\n' + "\n".join(lines) + "\n"
    if not any(line.startswith(("model", "select.model")) for line in lines):
        text += 'model = ":m"\n'
    write(root, {"BUILD.toml": ROOT_WITH_CONFIGURATIONS, "p/BUILD.toml": PLATFORMS, "a/BUILD.toml": text})
    return load_world(root, "//a:l", configuration=configuration).targets[label("//a:l")]


@pytest.mark.parametrize(
    ("platform", "configuration", "expected"),
    [
        ("", "default", "//p:cpu"),
        ("", "gpu", "//p:gpu"),
        ("", "debug", "//p:cpu"),
        ('platform = "//p:cpu"', "gpu", "//p:cpu"),
        ('platform = { gpu = "//p:cpu", default = "//p:gpu" }', "gpu", "//p:cpu"),
        ('platform = { gpu = "//p:cpu", default = "//p:gpu" }', "default", "//p:gpu"),
        ('platform = { debug = "//p:gpu" }', "default", "//p:cpu"),
    ],
)
def test_platform_is_the_targets_then_the_configurations_then_the_workspaces(
    tmp_path: Path, platform: str, configuration: str, expected: str
) -> None:
    target = library(tmp_path, platform, configuration=configuration)
    assert str(target.platform) == expected
    assert str(target.label_of("platform")) == expected
    assert label(expected) in target.referenced_labels


@pytest.mark.parametrize(
    ("lines", "configuration", "expected"),
    [
        ((), "default", "O2"),
        ((), "debug", "O0"),
        (('opt = "O3"',), "debug", "O3"),
        (('opt = "O3"',), "forced", "O0"),
        (('opt = "O3"', 'platform = "//p:gpu"'), "forced", "O1"),
        (('opt = { "//p:cpu" = "O3", default = "O1" }',), "default", "O3"),
        (('opt = { "//p:cpu" = "O3", default = "O1" }',), "gpu", "O1"),
        (('opt = { "//p:cpu" = "O3", debug = "O1", default = "O0" }',), "debug", "O3"),
        (('opt = { "//p:gpu" = "O3", debug = "O1", default = "O0" }',), "debug", "O1"),
        (('opt = { "//p:gpu" = "O3" }',), "default", "O2"),
        (('opt = { "//p:gpu" = "O3" }',), "debug", "O0"),
        (('opt = "O3"',), "partly", "O3"),
        (('opt = "O3"', 'platform = "//p:gpu"'), "partly", "O1"),
        (('select.opt = { "//p:cpu" = "O3", default = "O1" }',), "default", "O3"),
    ],
)
def test_the_nearest_word_on_a_value_wins(
    tmp_path: Path, lines: tuple[str, ...], configuration: str, expected: str
) -> None:
    assert library(tmp_path, *lines, configuration=configuration).string("opt") == expected


def test_tables_by_platform_are_written_under_select(tmp_path: Path) -> None:
    chosen = 'select.notes = { "//p:gpu" = { size = 1 }, default = { size = 2 } }'
    assert library(tmp_path, chosen).table("notes") == {"size": 2}
    assert library(tmp_path, chosen, configuration="gpu").table("notes") == {"size": 1}
    plain = 'notes = { "//p:gpu" = { size = 1 }, default = { size = 2 } }'
    assert library(tmp_path, plain, configuration="gpu").table("notes") == {
        "//p:gpu": {"size": 1},
        "default": {"size": 2},
    }
    assert library(tmp_path, configuration="debug").table("notes") == {"checks": True}


def test_labels_of_a_configuration_are_relative_to_the_root(tmp_path: Path) -> None:
    target = library(tmp_path, 'model = ":m"', configuration="forced")
    assert str(target.label_of("model")) == "//:root-model"
    assert str(target.location_of("model")).startswith("BUILD.toml:13:")


def test_chosen_label_alone_is_a_dependency(tmp_path: Path) -> None:
    target = library(tmp_path, 'model = { "//p:gpu" = ":m", default = "//:root-model" }')
    assert [str(found) for found in target.referenced_labels] == ["//:root-model", "//p:cpu"]


def test_branch_that_does_not_apply_is_checked_too(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r'a/BUILD\.toml:6:23: no target //a:mm, the "model" of //a:l'):
        library(tmp_path, 'model = { "//p:gpu" = ":mm", default = "//:root-model" }')


def test_axis_of_a_matrix_is_not_overridden(tmp_path: Path) -> None:
    text = '[[model]]\nname = "m"\n[[library]]\nname = "l-{opt}"\nmatrix = { opt = ["O1", "O2"] }\nmodel = ":m"\n'
    files = {"BUILD.toml": ROOT_WITH_CONFIGURATIONS, "p/BUILD.toml": PLATFORMS}
    write(tmp_path, {**files, "a/BUILD.toml": text + 'quantization = "q0f16"\n'})
    loaded = load_world(tmp_path, "//a:all", configuration="forced")
    assert loaded.targets[label("//a:l-O1")].string("opt") == "O1"


def test_configuration_carries_its_name_and_environment(tmp_path: Path) -> None:
    write(tmp_path, {"BUILD.toml": ROOT_WITH_CONFIGURATIONS, "p/BUILD.toml": PLATFORMS})
    found = load_world(tmp_path, configuration="gpu").configuration
    assert (found.name, dict(found.environment)) == ("gpu", {"MODE": "fast"})
    assert load_world(tmp_path).configuration.name == "default"


def test_platform_must_not_depend_on_itself(tmp_path: Path) -> None:
    with pytest.raises(Exception, match='"platform" in //a:l cannot depend on a platform, only on the configuration'):
        library(tmp_path, 'platform = { "//p:cpu" = "//p:gpu" }')


def test_default_platform_must_be_one(tmp_path: Path) -> None:
    write(tmp_path, {"BUILD.toml": ROOT + 'default_platform = ":x"\n[[thing]]\nname = "x"\n'})
    assert errors_of(tmp_path) == (
        'BUILD.toml:3:20: //:x is a thing, which cannot be the "default_platform" of [workspace]\n'
        "  allowed rules: platform"
    )


def test_keys_that_mean_the_same_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match='two keys of "kind" of //:p name //:q'):
        load_world(write(tmp_path, {"BUILD.toml": ROOT + TWICE}))


TWICE = """
[[platform]]
name = "q"
kind = "llvm"

[[platform]]
name = "p"
kind = { ":q" = "llvm", "//:q" = "cuda", default = "llvm" }
"""
