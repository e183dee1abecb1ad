"""A workspace of a few targets that nothing has to be built for."""

from __future__ import annotations

from pathlib import Path

import pytest

BUILD_FILE = """\
[workspace]
name = "example"

[configuration.release]

[[local_file]]
name = "data"
path = "{data}"  # of who builds

[[filegroup]]
name = "all-data"
srcs = [":data"]

[[platform]]
name = "v3"
kind = "cpu"
cpu = "x86-64-v3"
"""


def enter_small_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that one stands in, with a fetched file outside of it."""
    (tmp_path / "outside.bin").write_bytes(b"hello\n")
    root = tmp_path / "workspace"
    (root / "models").mkdir(parents=True)
    (root / "BUILD.toml").write_text(BUILD_FILE.replace("{data}", str(tmp_path / "outside.bin")))
    (root / "models/BUILD.toml").write_text('[[filegroup]]\nname = "shapes"\nsrcs = ["//:data"]\n')
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root
