"""Two folders on one machine that share a server of results."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlcbuild.cli.main import main
from tests.durations import without_times
from tests.remote import http_server

Snapshot = Callable[[str, str], None]


Capture = pytest.CaptureFixture[str]


BUILD_FILE = """\
[workspace]
name = "example"

[[tool]]
name = "sh"
path = "/bin/sh"

[[command]]
name = "one"
tool = ":sh"
inputs = ["name.txt"]
outputs = ["one.txt"]
arguments = ["-c", "read name < $0; echo one $name > $1", "{inputs}", "{outputs}"]

[[command]]
name = "two"
tool = ":sh"
inputs = [":one"]
outputs = ["two.txt"]
arguments = ["-c", "cat $0 $0 > $1", "{inputs}", "{outputs}"]

[[command]]
name = "broken"
tool = ":sh"
inputs = [":one"]
outputs = ["x"]
arguments = ["-c", "exit 3"]
tags = ["manual"]
"""


class Place:
    """A machine of its own: a checkout, a home, a cache."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
        self.folder = folder
        self.root = folder / "workspace"
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.root.mkdir(parents=True)
        (self.root / "BUILD.toml").write_text(BUILD_FILE)
        (self.root / "name.txt").write_text("world\n")
        for path in [self.root, *self.root.iterdir()]:
            os.utime(path, (1_000_000_000, 1_000_000_000))

    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder / "home"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "MLCBUILD_REMOTE_SLOW_LOOKUPS": "wait",
        }

    def build(self, *arguments: str, **variables: str) -> tuple[int, str]:
        """The exit code, and what was said."""
        code, _, said = self.run("build", *(arguments or ("//...",)), **variables)
        return code, said

    def run(self, *arguments: str, **variables: str) -> tuple[int, str, str]:
        """The exit code of a command, and what it wrote to standard output and said."""
        with self._monkeypatch.context() as patch:
            for name, value in {**self.environment(), **variables}.items():
                patch.setenv(name, value)
            patch.chdir(self.root)
            code = main(list(arguments))
            out, said = self._capsys.readouterr()
            return code, out, without_times(said)

    def user(self, remote: str) -> None:
        path = self.folder / "config/mlcbuild/settings.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"[remote]\n{remote}\n")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Callable[[str], Place]:
    return lambda name: Place(tmp_path / name, monkeypatch, capsys)


@pytest.fixture
def server() -> Iterator[http_server.Cache]:
    with http_server.running() as cache:
        yield cache


def results_in(server: http_server.Cache) -> list[str]:
    return [path for path in server.blobs if path.startswith("/ac/")]


def shown(server: http_server.Cache, said: str) -> str:
    """What was said, with the same address and amounts in each run."""
    said = re.sub(r"[0-9a-f]{64}/\d+", "KEY", said.replace(server.address, "http://server"))
    return re.sub(r"(down|up) [\d.]+ k?B", r"\1 N", said)


PUBLIC = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="
