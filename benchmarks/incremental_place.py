"""A workspace, a copy of mlcbuild's code and a cache, which the rows of the incremental table may change."""

from __future__ import annotations

import compileall
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# A file changed within so many seconds before a build is read again by the next: its stat alone proves nothing.
RACY_SECONDS = 2.1

_BUILD_FILE = """\
[workspace]
name = "incremental"

[[platform]]
name = "cuda"
kind = "cuda"
arch = ["sm_90"]

[[platform]]
name = "cpu"
kind = "cpu"
cpu = "x86-64-v3"

[[model_library]]
name = "{{model}}-{{platform}}"
matrix = {{ model = {labels}, platform = [":cuda", ":cpu"] }}
quantization = {{ ":cuda" = "q4f16_1", default = "q4f32_1" }}
opt = "O2"
"""
_MODEL = """
[[model]]
name = "{name}"
config = "{name}.json"
"""


class NotMeasuredError(Exception):
    """A build failed, or ran what it had no reason to: there is no figure."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """A build that succeeded: seconds of the whole command, seconds of processors that it and its workers used, the
    number of its actions, and those that ran, by mnemonic in the order in which the first of each ended, with the
    seconds that they took, added up."""

    seconds: float
    processor_seconds: float
    actions: int
    ran: dict[str, int]
    took: dict[str, float] = field(default_factory=dict)

    @property
    def executed(self) -> int:
        return sum(self.ran.values())


class Place:
    """All of it lies below `folder`. The models are those of `shapes`, a folder with NAME/config.json for each name.

    The targets are `NAME-cuda` (q4f16_1, sm_90) and `NAME-cpu` (q4f32_1), all at O2.
    """

    def __init__(self, folder: Path, models: Sequence[str], shapes: Path) -> None:
        self.models = tuple(models)
        self.root, self.code, self.cache = folder / "workspace", folder / "code", folder / "cache"
        self._folder = folder
        self._changed: list[tuple[Path, bytes, int]] = []
        self.root.mkdir()
        labels = json.dumps([f":{name}" for name in models])
        tables = [_BUILD_FILE.format(labels=labels), *(_MODEL.format(name=name) for name in models)]
        (self.root / "BUILD.toml").write_text("".join(tables))
        for name in models:
            shutil.copy(shapes / name / "config.json", self.root / f"{name}.json")
        shutil.copytree(PROJECT / "mlcbuild", self.code / "mlcbuild", ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(self.code, quiet=2)

    # Changes

    def write(self, path: Path, text: str) -> None:
        """Another content for a file, until `undo`."""
        self._changed.append((path, path.read_bytes(), path.stat().st_mtime_ns))
        path.write_text(text)

    def exchange(self, path: Path, old: str, new: str) -> None:
        """Other words for `old`, which must be in the file once."""
        text = path.read_text()
        if text.count(old) != 1:
            raise SystemExit(f"{path}: {old!r} is there {text.count(old)} times, not once: the row needs another edit")
        self.write(path, text.replace(old, new))

    def undo(self) -> None:
        """Everything as it was, with its old times: bytecode is told from sources by them."""
        for path, content, modified in reversed(self._changed):
            path.write_bytes(content)
            os.utime(path, ns=(modified, modified))
        self._changed.clear()

    # States of the cache

    def forget(self) -> None:
        """Empty the cache, and the workspace of all that builds left in it."""
        for path in (self.cache, self.root / ".mlcbuild", self.root / "mlcbuild-out"):
            shutil.rmtree(path, ignore_errors=True)

    def keep(self, name: str) -> None:
        """Keep a copy of the cache, extended attributes and all, for `bring_back`."""
        shutil.copytree(self.cache, self._folder / "kept" / name)

    def bring_back(self, target: str) -> None:
        """The cache that was kept under a target's name, and a workspace in which that target was just built.

        Built twice: what is too young for the first build to rely on its stat has settled for the second. Raises
        NotMeasuredError where either has something to run.
        """
        self.forget()
        shutil.copytree(self._folder / "kept" / target, self.cache)
        if (build := self.build(target)).executed:
            raise NotMeasuredError(f"//:{target} is not the same twice: {build.ran} ran again")
        time.sleep(RACY_SECONDS)
        self.build_again(target)

    # Builds

    def build(self, *targets: str) -> Build:
        """Build targets of the root package, with options among them, in a process of its own. Raises NotMeasuredError
        where it fails."""
        events = self._folder / "events"
        words = [word if word.startswith("-") else f"//:{word}" for word in targets]
        seconds, processor_seconds, _ = self._command("build", f"--events={events}", *words)
        finished = [json.loads(line) for line in events.read_text().splitlines() if '"action_finished"' in line]
        ran: dict[str, int] = {}
        took: dict[str, float] = {}
        for event in finished:
            if event["status"].startswith("executed_"):
                mnemonic = event["mnemonic"]
                ran[mnemonic] = ran.get(mnemonic, 0) + 1
                took[mnemonic] = took.get(mnemonic, 0.0) + event["time"] - event["start"]
        return Build(seconds=seconds, processor_seconds=processor_seconds, actions=len(finished), ran=ran, took=took)

    def build_again(self, target: str) -> Build:
        """Build what is up to date, without an event log: mlcbuild's short way, which has no events to tell.

        Raises NotMeasuredError where anything ran.
        """
        seconds, processor_seconds, told = self._command("build", f"//:{target}")
        counts = re.search(r"^(\d+) actions: (\d+) up to date", told, re.MULTILINE)
        if counts is None or counts[1] != counts[2]:
            raise NotMeasuredError(f"//:{target} was not up to date:\n{told}")
        return Build(seconds=seconds, processor_seconds=processor_seconds, actions=int(counts[1]), ran={})

    def shut_down(self) -> None:
        """End the workers that builds have left."""
        self._command("shutdown")

    def _command(self, *arguments: str) -> tuple[float, float, str]:
        """Seconds, seconds of processors, and what was told."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "XDG_CACHE_HOME": str(self.cache),
            "PYTHONPATH": str(self.code),
        }
        command = [sys.executable, "-m", "mlcbuild.cli.main", *arguments]
        began, used = time.perf_counter(), _processor_seconds()
        done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, check=False)
        seconds, processor_seconds = time.perf_counter() - began, _processor_seconds() - used
        if done.returncode:
            raise NotMeasuredError(f"{' '.join(command)} failed:\n{done.stderr}")
        return seconds, processor_seconds, done.stderr


def _processor_seconds() -> float:
    """What all processes that this one has waited for have used, and those that they have waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
