"""A workspace, a copy of mlcbuild and its cache, in which a row changes one thing, builds, and puts it back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.compiler.tiny_models import write_config

PROJECT = Path(__file__).parents[3]


class Place:
    """What a row may change; `undo` puts all of it back."""

    def __init__(self, folder: Path, workers: Mapping[str, str]) -> None:
        self.folder = folder
        self._workers = workers
        self.root = folder / "workspace"
        self.code = folder / "code"
        self.site = folder / "site"
        self.arguments: list[str] = []
        self.environment: dict[str, str] = {}
        self.labels: set[str] = set()
        self._before: list[tuple[Path, bytes | None, int]] = []

    def write(self, path: Path, content: bytes) -> None:
        self._before.append(
            (path, path.read_bytes() if path.exists() else None, path.stat().st_mode if path.exists() else 0)
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(content)

    def exchange(self, path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {path}"
        self.write(path, text.replace(old, new).encode())

    def undo(self) -> None:
        for path, content, mode in reversed(self._before):
            path.unlink()
            if content is not None:
                path.write_bytes(content)
                path.chmod(mode & 0o777)
        shutil.rmtree(self.site, ignore_errors=True)
        self.site.mkdir()
        self._before, self.arguments, self.environment = [], [], {}

    def build(self, command: str = "build") -> dict[str, int]:
        """Build or test everything: how many actions of each mnemonic ran; `labels` has their targets."""
        events = self.folder / "events"
        done = self.mlcbuild(command, "//...", "--events", str(events), *self.arguments)
        assert done.returncode == 0, done.stderr
        ran: dict[str, int] = {}
        self.labels = set()
        for line in events.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "action_finished" and event["status"] == "executed_local":
                ran[event["mnemonic"]] = ran.get(event["mnemonic"], 0) + 1
                self.labels.add(event["owner"])
        return ran

    def mlcbuild(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of the copy, in the workspace."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            **self._workers,
            **self.environment,
            "PYTHONPATH": f"{self.code}{os.pathsep}{self.site}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        called = [sys.executable, "-m", "mlcbuild.cli.main", *arguments]
        return subprocess.run(called, cwd=self.root, env=environment, capture_output=True, text=True, check=False)


def new_place(folder: Path, workers: Mapping[str, str], build_file: str) -> Place:
    place = Place(folder, workers)
    for created in (place.root, place.site):
        created.mkdir()
    shutil.copytree(
        PROJECT / "mlcbuild", place.code / "mlcbuild", ignore=shutil.ignore_patterns("__pycache__"), symlinks=False
    )
    (place.root / "BUILD.toml").write_text(build_file)
    write_config(place.root / "config.json")
    return place
