"""A small workspace with a matrix: the rule of `kernel_workspace` with a platform, for texts, levels and platforms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kernel_workspace import MODEL, enter_kernel_workspace

BUILD_FILE = """\
[workspace]
name = "example"
rules = ["//pipeline:rules.py"]

[[platform]]
name = "turing"
kind = "cuda"
arch = ["sm_75"]

[[kernels]]
name = "{text}-{level}-{platform}"
matrix = { text = ["first.txt", "second.txt"], level = [1, 2], platform = ["@platforms//:cpu", ":turing"] }
exclude = [{ text = "second.txt", level = 2, platform = ":turing" }]
include = [{ level = 2, note = "long" }, { text = "first.txt", level = 3, platform = "@platforms//:cpu" }]

[[kernels]]
name = "host"
text = "first.txt"
platform = ":turing"
compatible_with = ["cpu"]

[[kernels]]
name = "alone"
text = "third.txt"
"""
SECOND = "matmul decode,prefill first body\nadd decode other body\n"


def enter_matrix_workspace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the workspace below `folder` and make it the current directory, with a disk cache of its own."""
    root = enter_kernel_workspace(folder, monkeypatch)
    (root / "BUILD.toml").write_text(BUILD_FILE)
    (root / "first.txt").write_text(MODEL)
    (root / "second.txt").write_text(SECOND)
    (root / "third.txt").write_text(SECOND)
    rules = root / "pipeline" / "rules.py"
    text = rules.read_text()
    platform = (
        '            Attribute(name="platform", kind=AttributeKind.LABEL, provides=("platform",), doc="A platform."),\n'
    )
    place = '            Attribute(name="level"'
    assert place in text
    text = text.replace(place, f"            {platform}{place}")
    parameter = '"level": target.integer("level")'
    assert parameter in text
    rules.write_text(text.replace(parameter, f'{parameter}, "platform": str(target.platform)'))
    return root
