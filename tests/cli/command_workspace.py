"""A workspace of `command` targets: some that succeed, fail, are equal or slow, and a fetched file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

BUILD_FILE = """\
[workspace]
name = "example"

[configuration.release]

[[tool]]
name = "sh"
path = "/bin/sh"

[[command]]
name = "greeting"
tool = ":sh"
inputs = ["name.txt"]
outputs = ["greeting.txt"]
arguments = ["-c", "read name < $0; echo greeting $name; echo hello $name > $1", "{inputs}", "{outputs}"]

[[command]]
name = "program"
tool = ":sh"
inputs = [":greeting"]
outputs = ["program"]
environment = { PATH = "/usr/bin:/bin" }
arguments = ["-c", "(echo '#!/bin/sh'; echo 'echo \\"$@\\"; exit 5') > $0; chmod +x $0", "{outputs}"]

[[command]]
name = "broken"
tool = ":sh"
inputs = [":greeting"]
outputs = ["x"]
arguments = ["-c", "echo one; echo two >&2; exit 3"]
tags = ["manual"]

[[command]]
name = "after-broken"
tool = ":sh"
inputs = [":broken"]
outputs = ["x"]
arguments = ["-c", "true"]
tags = ["manual"]

[[command]]
name = "equal-{number}"
matrix = { number = ["1", "2", "3"] }
tool = ":sh"
outputs = ["x"]
arguments = ["-c", "echo one; exit 3"]
tags = ["manual"]

[[command]]
name = "slow"
tool = ":sh"
outputs = ["x"]
environment = { PATH = "/usr/bin:/bin" }
arguments = ["-c", "echo began; exec sleep 60"]
tags = ["manual"]

[[local_file]]
name = "data"
path = "{data}"
sha256 = "{pin}"
tags = ["manual"]
"""
PIN = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"  # of "hello\\n"


def enter_command_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that one stands in, with a store of its own."""
    (tmp_path / "data.bin").write_bytes(b"hello\n")
    root = tmp_path / "workspace"
    root.mkdir()
    text = BUILD_FILE.replace("{data}", str(tmp_path / "data.bin")).replace("{pin}", PIN)
    (root / "BUILD.toml").write_text(text)
    (root / "name.txt").write_text("world\n")
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root


def report_of(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    assert list(document) == [
        "success",
        "exit_code",
        "wall_seconds",
        "invocation_id",
        "digest_function",
        "targets",
        "needed_targets",
        "actions",
        "skipped",
        "keys",
        "action_results",
        "not_cached",
        "critical_path",
        "ran",
        "bytes",
        "remote",
    ]
    return document
