"""What targets say that their actions need, and every mistake in it at its own place."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.errors import WorkspaceErrors
from tests.rules.world import action, analysed, write

COMMAND = """
[[tool]]
name = "sh"
path = "/bin/sh"

[[command]]
name = "it"
tool = ":sh"
outputs = ["out.txt"]
requirements = {}
"""


def test_a_command_says_what_it_needs(tmp_path: Path) -> None:
    said = '{ cpus = 2, memory = "4GiB", gpus = 0.5, timeout = "10m", labels = { zone = "b", arch = "sm_90" } }'
    root = write(tmp_path, {"a/BUILD.toml": COMMAND.format(said)})
    assert action(analysed(root, "//a:it"), "Command").requirements == ExecutionRequirements(
        cpus=2, memory_bytes=4 << 30, gpus=0.5, timeout_seconds=600.0, labels=(("arch", "sm_90"), ("zone", "b"))
    )


def test_a_command_that_says_nothing_needs_a_cpu(tmp_path: Path) -> None:
    root = write(tmp_path, {"a/BUILD.toml": COMMAND.format("{}")})
    assert action(analysed(root, "//a:it"), "Command").requirements == ExecutionRequirements()


@pytest.mark.parametrize(
    ("said", "column", "message"),
    [
        ("{ cpus = 0 }", 25, '"cpus" must be at least 1, not 0'),
        ("{ cpus = 1.5 }", 25, '"cpus" must be an integer, not the float 1.5'),
        ("{ gpus = -1 }", 25, '"gpus" must be at least 0, not -1'),
        ('{ memory = "much" }', 27, '"memory" in "requirements" of //a:it is not a size: "much"'),
        ("{ memory = 4 }", 27, '"memory" must be a size such as 4GiB, not the integer 4'),
        ('{ timeout = "0s" }', 28, '"timeout" in "requirements" of //a:it is not a duration: "0s"'),
        ("{ labels = { arch = 90 } }", 36, '"labels" must have a string for "arch", not the integer 90'),
        ("{ cpu = 1 }", 18, 'unknown key "cpu" in "requirements" of //a:it'),
        ('"2 cpus"', 16, '"requirements" must be a table, not the string "2 cpus"'),
    ],
)
def test_a_mistake_is_told_where_it_stands(tmp_path: Path, said: str, column: int, message: str) -> None:
    root = write(tmp_path, {"a/BUILD.toml": COMMAND.format(said)})
    with pytest.raises(WorkspaceErrors) as caught:
        analysed(root, "//a:it")
    assert message in str(caught.value)
    assert f"a/BUILD.toml:10:{column}" in str(caught.value)
