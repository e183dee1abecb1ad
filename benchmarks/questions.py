"""The seconds of commands that only look: `query`, `aquery` and `explain`.

    python -m benchmarks.questions [--targets N] [--actions N] [--changed N] [--rounds N]

Method. A workspace of as many `command` targets as actions is built once with the disk cache in a temporary folder
(benchmarks/command_targets.py). `query` is asked about the dependencies of every target of a smaller workspace,
`aquery` about all actions, as text and as JSON. Then the shell of all tools gets another argument, so that every action
of a third workspace has another key, and `explain` is asked why its actions would run. Each command is a process of its
own, started as a user starts it. Each question is asked in turn in three ways: "first", after the snapshots of the
workspace were removed, "edited", after an edit of one `BUILD.toml` of ten that changes a target, and "again", when
nothing has changed. The median and the extremes of the rounds are printed, of the clock and of the processor, which is
about the same on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.command_targets import RACY_SECONDS, write_workspace

_PROGRAM = str(Path(sys.executable).parent / "mlcbuild")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, default=2000, help="of the query")
    parser.add_argument("--actions", type=int, default=10_000, help="of aquery")
    parser.add_argument("--changed", type=int, default=1000, help="actions that explain explains")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
        queried, shown, explained = (Path(folder, name) for name in ("queried", "shown", "explained"))
        write_workspace(queried, arguments.targets)
        write_workspace(shown, arguments.actions)
        write_workspace(explained, arguments.changed)
        for workspace in (queried, shown, explained):
            subprocess.run([_PROGRAM, "build", "//..."], cwd=workspace, check=True, capture_output=True)
        tools = explained / "tools/BUILD.toml"
        tools.write_text(tools.read_text().replace('cat "$@"', 'cat  "$@"'))
        for name, workspace, command in (
            (f"query deps(//...), {arguments.targets:,} targets", queried, ["query", "deps(//...)"]),
            (f"query --output tree, {arguments.targets:,} targets", queried, ["query", "//...", "--output", "tree"]),
            (f"aquery, {arguments.actions:,} actions", shown, ["aquery", "//..."]),
            (f"aquery --output json, {arguments.actions:,} actions", shown, ["aquery", "//...", "--output", "json"]),
            (f"explain, {arguments.changed:,} actions", explained, ["explain", "//..."]),
        ):
            time.sleep(RACY_SECONDS)
            rounds: dict[str, list[tuple[float, float]]] = {"first": [], "edited": [], "again": []}
            for number in range(arguments.rounds):
                for way in rounds:
                    if way == "first":
                        shutil.rmtree(workspace / ".mlcbuild/snapshots", ignore_errors=True)
                    elif way == "edited":
                        _edit(workspace / "p0/BUILD.toml", f"round {number}")
                        time.sleep(RACY_SECONDS)
                    rounds[way].append(_seconds(command, workspace))
            for way, seconds in rounds.items():
                clock, processor = (sorted(each) for each in zip(*seconds, strict=True))
                print(
                    f"{name:42} {way:6} {statistics.median(clock):6.2f} s ({clock[0]:.2f} to {clock[-1]:.2f}), "
                    f"processor {statistics.median(processor):.2f} s ({processor[0]:.2f} to {processor[-1]:.2f})"
                )


def _edit(file: Path, tag: str) -> None:
    """Change the first target of a file, as an editor does: another file takes its place."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("tags")]
    lines.insert(lines.index('name = "a0"') + 1, f'tags = ["{tag}"]')
    edited = file.with_suffix(".edited")
    edited.write_text("\n".join(lines) + "\n")
    edited.replace(file)


def _seconds(command: list[str], workspace: Path) -> tuple[float, float]:
    """Of the clock and of the processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([_PROGRAM, *command], cwd=workspace, check=True, capture_output=True)
    ended, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended - began, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main()
