"""A workspace of three commands: one copies a file, one copies its output, and one fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BUILD_FILE = """\
[workspace]
name = "example"

[[tool]]
name = "sh"
path = "/bin/sh"

[[command]]
name = "copy"
tool = ":sh"
inputs = ["data.txt"]
arguments = ["-c", "echo copying; cat {inputs} > {outputs}"]
outputs = ["copy.txt"]

[[command]]
name = "again"
tool = ":sh"
inputs = [":copy"]
arguments = ["-c", "cat {inputs} > {outputs}"]
outputs = ["again.txt"]

[[command]]
name = "bad"
tool = ":sh"
arguments = ["-c", "echo it goes wrong; exit 3"]
outputs = ["never"]
"""


@contextmanager
def copying_workspace(folder: Path) -> Iterator[Path]:
    """Write the workspace into `folder/workspace` and make it the current directory, with a disk cache of its own and
    settings beside it. Times are those of UTC.
    """
    root = folder / "workspace"
    root.mkdir()
    (root / "BUILD.toml").write_text(BUILD_FILE)
    (root / "data.txt").write_text("1\n")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(root)
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()
        yield root
    time.tzset()
