"""A graph of real commands, as a workspace of `command` targets and as the same graph in a `build.ninja`.

Each action joins files with `cat`: its own source and, except in the first layer, the outputs of two actions of the
layer before. `//...` requests every target, so that all outputs are placed.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_LAYERS = 5
_A_PACKAGE = 1000
RACY_SECONDS = 2.5
"""A file counts as untouched only when it is older than what the coarsest clock of a file system can tell apart."""

_CAT = '[[tool]]\nname = "cat"\npath = "/bin/sh"\narguments = ["-c", \'cat "$@" > "$0"\']\n'


def graph(actions: int) -> Iterator[tuple[str, int, list[str]]]:
    """Name, package and the names of needed actions, each after those that it needs."""
    width = max(1, -(-actions // _LAYERS))
    for number in range(actions):
        layer, place = divmod(number, width)
        needs = sorted({(layer - 1) * width + place, (layer - 1) * width + (place + 1) % width}) if layer else []
        yield f"a{number}", number // _A_PACKAGE, [f"a{each}" for each in needs]


def write_workspace(folder: Path, actions: int) -> None:
    """A workspace of so many targets in packages of 1,000, with a source file for each."""
    (folder / "tools").mkdir(parents=True)
    (folder / "BUILD.toml").write_text('[workspace]\nname = "no-op"\n')
    (folder / "tools/BUILD.toml").write_text(_CAT)
    texts: dict[int, list[str]] = {}
    packages: dict[str, int] = {}
    for name, package, needs in graph(actions):
        packages[name] = package
        inputs = [f"{name}.txt", *(f"//p{packages[need]}:{need}" for need in needs)]
        arguments = ["{outputs}", "{inputs}"]
        texts.setdefault(package, []).append(
            f'[[command]]\nname = "{name}"\ntool = "//tools:cat"\ninputs = {json.dumps(inputs)}\n'
            f'outputs = ["{name}.out"]\narguments = {json.dumps(arguments)}\n'
        )
    for package, targets in texts.items():
        (folder / f"p{package}").mkdir()
        (folder / f"p{package}/BUILD.toml").write_text("\n".join(targets))
    for name, package in packages.items():
        (folder / f"p{package}/{name}.txt").write_text(f"the source of {name}\n")


def write_ninja(folder: Path, actions: int) -> None:
    """The same graph and sources, with outputs below `out/`."""
    lines = ["rule cat", "  command = cat $in > $out"]
    packages: dict[str, int] = {}
    for name, package, needs in graph(actions):
        packages[name] = package
        inputs = [f"p{package}/{name}.txt", *(f"out/p{packages[need]}/{need}.out" for need in needs)]
        lines.append(f"build out/p{package}/{name}.out: cat {' '.join(inputs)}")
        source = folder / f"p{package}/{name}.txt"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(f"the source of {name}\n")
    (folder / "build.ninja").write_text("\n".join(lines) + "\n")


def program() -> str:
    """The command line of the environment that runs the benchmark."""
    return str(Path(sys.executable).parent / "mlcbuild")


def environment(cache: Path) -> dict[str, str]:
    """That of this process, with a cache and settings of the benchmark's own."""
    return {**os.environ, "XDG_CACHE_HOME": str(cache), "XDG_CONFIG_HOME": str(cache / "no-settings")}


def build(workspace: Path, cache: Path, *options: str) -> tuple[float, str]:
    """Seconds that a build of everything takes from its start to its end, and what it told of itself."""
    command = [program(), "build", "//...", *options]
    begin = time.perf_counter()
    ended = subprocess.run(
        command, cwd=workspace, env=environment(cache), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    seconds = time.perf_counter() - begin
    if ended.returncode:
        raise SystemExit(f"the build failed:\n{ended.stderr[-2000:]}")
    return seconds, ended.stderr


def processor_seconds() -> float:
    """What the processes have used that this one has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def settle(workspace: Path, cache: Path) -> None:
    """Build until there is nothing to do, and wait until everything is old enough to be known by its stat."""
    build(workspace, cache)
    time.sleep(RACY_SECONDS)
    build(workspace, cache)


def forget_no_op_records(workspace: Path) -> None:
    """What the short way of a build that has nothing to do is known by."""
    shutil.rmtree(workspace / ".mlcbuild" / "no-op", ignore_errors=True)


def forget_outputs(workspace: Path) -> None:
    """As in a new clone: no outputs, nothing remembered. The cache is another folder.

    What was there is moved away, not deleted: an ext4 without journal looks for inodes that it may use again for
    minutes after many were deleted, which doubles what a new file costs, and no clone has that behind it.
    """
    for name in ("mlcbuild-out", ".mlcbuild"):
        if (workspace / name).exists():
            away = workspace.parent / "away"
            away.mkdir(exist_ok=True)
            (workspace / name).rename(away / f"{name}-{time.time_ns()}")
